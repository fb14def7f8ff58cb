-- stream returns the events of a stream, in the order of their versions: from from_version to below to_version (NULL: to its end), those of some types, and not younger than until; backward,
-- the newest first; at most max_events. It also returns events that were appended with SQL and are not carried yet, those of the caller's own transaction included.
CREATE OR REPLACE FUNCTION weir.stream(
    category text, stream text, from_version bigint DEFAULT 0, to_version bigint DEFAULT NULL,
    until timestamptz DEFAULT NULL, types text[] DEFAULT NULL, backward boolean DEFAULT false, max_events bigint DEFAULT NULL
) RETURNS SETOF weir.stream_event
LANGUAGE plpgsql STABLE SECURITY DEFINER
:by_index
AS $$
DECLARE
    about weir.topic := weir.find_category(category);
BEGIN
    IF from_version IS NULL OR backward IS NULL THEN
        RAISE '% is null', CASE WHEN backward IS NULL THEN 'backward' ELSE 'from_version' END
        USING ERRCODE = 'null_value_not_allowed', HINT = 'Leave it out to read from the first event on, forward.';
    ELSIF from_version < 0 OR to_version < from_version THEN
        RAISE 'the range of versions is % to %', from_version, coalesce(to_version::text, 'the end')
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Versions begin at 0, and a range must not end before it begins.';
    ELSIF max_events < 0 THEN
        RAISE 'max_events is %', max_events USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be 0 or more.';
    END IF;
    RETURN QUERY SELECT * FROM weir.read_stream(weir.stream_head(about.id, stream), from_version, to_version, backward, until, types, max_events);
END $$;
