-- find_stream returns where a stream begins and ends, events that no mover has carried yet included. It is STABLE: all it reads is of one snapshot, which shows each
-- append either in the head, or in weir.appended.
CREATE OR REPLACE FUNCTION weir.find_stream(
    key text,
    OUT head     bigint,  -- the version of the head's key, once all is carried; 0: there is none
    OUT carried  bigint,  -- events below this version are in weir.state
    OUT first    bigint,  -- the version of the first event that can be read
    OUT born     bigint,  -- first, when the stream was deleted last
    OUT next     bigint,  -- the version of the next event
    OUT is_there boolean, -- it was begun, and is not deleted
    OUT archived boolean
)
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    about json;
    last  record;
BEGIN
    SELECT s.version, weir.json_of_value(s.value) INTO head, about FROM weir.newest_state(key) AS s;
    head := coalesce(head, 0);
    carried := coalesce((about ->> 'next')::bigint, 0);
    first := coalesce((about ->> 'first')::bigint, 0);
    born := coalesce((about ->> 'born')::bigint, 0);
    next := carried;
    is_there := head > 0 AND NOT coalesce((about ->> 'deleted')::boolean, false);
    archived := coalesce((about ->> 'archived')::boolean, false);
    SELECT a.version, a.head INTO last FROM weir.appended a WHERE a.key = find_stream.key AND a.version >= carried ORDER BY a.version DESC LIMIT 1;
    IF FOUND THEN
        next := last.version + 1;
        head := last.head;
        is_there := true;
    END IF;
END $$;
