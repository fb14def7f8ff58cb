-- This runs whenever a process starts and need not install the functions.

SELECT weir.restore_rights();
