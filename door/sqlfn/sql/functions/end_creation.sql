-- end_creation notes how a mover carried out a request: state is done or refused.
CREATE OR REPLACE FUNCTION weir.end_creation(request bigint, state text, reason text) RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
BEGIN
    UPDATE weir.creation c SET state = end_creation.state, reason = end_creation.reason, done_at = clock_timestamp() WHERE c.id = request AND c.state = 'waiting';
END $$;
