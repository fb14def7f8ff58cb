-- Rights and triggers. This runs each time after the functions are installed.
SELECT weir.set_inbox_rights();
