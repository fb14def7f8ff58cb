-- check_own takes the row of weir.topic, and no longer the name.
DROP FUNCTION IF EXISTS weir.check_own(text);
