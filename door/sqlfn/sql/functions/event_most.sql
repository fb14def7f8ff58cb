-- event_most bounds an event, whatever its topic allows. A row of the inbox goes through memory as a whole, several times over: one of
-- hundreds of megabytes could make every look fail, and nobody's events would be carried any more.
CREATE OR REPLACE FUNCTION weir.event_most() RETURNS int LANGUAGE sql IMMUTABLE RETURN 16777216;
