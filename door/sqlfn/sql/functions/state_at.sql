-- state_at merges the data of a stream's events up to a time (NULL: of all), in order: fields of later events replace those of earlier ones, and a null stays. Events whose
-- data is not a JSON object are left out. version is the stream's version after the last of these events; 0: there was none.
CREATE OR REPLACE FUNCTION weir.state_at(category text, stream text, at timestamptz DEFAULT NULL, OUT state jsonb, OUT version bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
:by_index
AS $$
DECLARE
    topic weir.topic := weir.find_category(category);
    head  text := weir.stream_head(topic.id, stream);
    about record;
    e     record;
    more  jsonb;
BEGIN
    SELECT * INTO about FROM weir.find_stream(head);
    IF about.is_there AND about.first > about.born THEN
        RAISE 'the events of stream "%" of category "%" below version % were forgotten', left(stream, 64), category, about.first
        USING ERRCODE = 'WE015', HINT = 'Its state cannot be computed from the events that are left. weir.stream returns them.';
    END IF;
    version := 0;
    FOR e IN SELECT s.version, s.data_text FROM weir.read_stream(head, 0, NULL, false, at, NULL, NULL) AS s LOOP
        version := e.version + 1;
        more := weir.json_of(e.data_text);
        IF jsonb_typeof(more) = 'object' THEN
            state := coalesce(state, '{}') || more;
        END IF;
    END LOOP;
END $$;
