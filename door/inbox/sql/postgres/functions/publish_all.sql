-- publish_all publishes one event for each value (text[], jsonb[] or bytea[]), in order. keys (text[] or bytea[]) has one key for each value, or is
-- NULL: no event has a key. It returns the number of events.
--
-- It has the name and the arguments that it has in door/sqlfn.
CREATE OR REPLACE FUNCTION weir.publish_all(topic text, keys anycompatiblearray, "values" anyarray, headers jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:pinned
AS $$
DECLARE
    event record;
BEGIN
    IF "values" IS NULL THEN
        RAISE 'values is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'An empty array publishes nothing.';
    ELSIF pg_typeof("values") NOT IN ('text[]'::regtype, 'jsonb[]'::regtype, 'bytea[]'::regtype) THEN
        RAISE 'values is of type %', pg_typeof("values")
        USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be text[], jsonb[] or bytea[]: cast it.';
    ELSIF pg_typeof(keys) NOT IN ('text[]'::regtype, 'varchar[]'::regtype, 'bytea[]'::regtype) THEN
        RAISE 'keys is of type %', pg_typeof(keys)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be text[] or bytea[]: cast it.';
    ELSIF array_ndims("values") > 1 OR array_ndims(keys) > 1 THEN
        RAISE '% has more than one dimension', CASE WHEN array_ndims("values") > 1 THEN 'values' ELSE 'keys' END
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Give arrays of one dimension: each event has one key and one value.';
    ELSIF cardinality(keys) <> cardinality("values") THEN
        RAISE 'keys has % elements, but values has %', cardinality(keys), cardinality("values")
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one key for each value (it may be null), or NULL instead of the array.';
    END IF;
    FOR event IN
        SELECT weir.octets(x.key) AS key, weir.octets(x.value) AS value
        FROM ROWS FROM (unnest(keys), unnest("values")) WITH ORDINALITY AS x(key, value, n) ORDER BY x.n
    LOOP
        PERFORM weir.post(topic, event.key, event.value, headers, NULL, false);
    END LOOP;
    RETURN cardinality("values");
END $$;
