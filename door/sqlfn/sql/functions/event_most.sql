-- event_most is the largest size of an event, even if its topic allows more. A row of the inbox is copied in memory as a whole, several times: one of
-- hundreds of megabytes could make every look fail, and then no events would be moved.
CREATE OR REPLACE FUNCTION weir.event_most() RETURNS int LANGUAGE sql IMMUTABLE RETURN 16777216;
