-- append_all appends several events to one stream, in order: all of them or none. data (text[], jsonb[] or bytea[]) has an element for each type; so do metadata, ids and
-- at, unless they are NULL. It is append otherwise.
CREATE OR REPLACE FUNCTION weir.append_all(
    category text, stream text, expected text, types text[], data anyarray, metadata jsonb[] DEFAULT NULL, ids text[] DEFAULT NULL, at timestamptz[] DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:pinned
AS $$
BEGIN
    IF pg_typeof(data) NOT IN ('text[]'::regtype, 'jsonb[]'::regtype, 'bytea[]'::regtype) THEN
        RAISE 'data is of type %', pg_typeof(data)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be text[], jsonb[] or bytea[]: cast it.';
    ELSIF array_ndims(data) > 1 THEN
        RAISE 'data has more than one dimension' USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an array of one dimension: each event has one element.';
    END IF;
    RETURN weir.append_events(category, stream, expected, types, (SELECT array_agg(weir.octets(d.data) ORDER BY d.n) FROM unnest(data) WITH ORDINALITY AS d(data, n)),
                              metadata, ids, at);
END $$;

CREATE OR REPLACE FUNCTION weir.append_all(
    category text, stream text, expected bigint, types text[], data anyarray, metadata jsonb[] DEFAULT NULL, ids text[] DEFAULT NULL, at timestamptz[] DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql -- a function in SQL cannot have arguments of any type
:pinned
AS $$
BEGIN
    RETURN weir.append_all(category, stream, expected::text, types, data, metadata, ids, at);
END $$;
