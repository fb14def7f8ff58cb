-- post_all puts one event for each value into the inbox, in order; see publish_all. It returns their number. wanted is the base of their
-- rows: not NULL if somebody has their ids (tables/050_enqueued.sql).
CREATE OR REPLACE FUNCTION weir.post_all(about weir.topic, keys anycompatiblearray, "values" anyarray, headers jsonb, wanted bigint) RETURNS bigint
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    overhead bigint;
    wrong  record;
    me     xid8;
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
    headers := weir.checked_headers(headers);
    overhead := weir.overhead(headers);
    SELECT e.n, e.size INTO wrong
    FROM (
        SELECT x.n, overhead + coalesce(octet_length(x.key), 0) + octet_length(weir.octets(x.value)) AS size
        FROM ROWS FROM (unnest(keys), unnest("values")) WITH ORDINALITY AS x(key, value, n)
    ) AS e
    WHERE e.size IS NULL OR e.size > about.event_max ORDER BY e.n LIMIT 1;
    IF wrong.n IS NOT NULL AND wrong.size IS NULL THEN
        RAISE 'values: element % is null', wrong.n USING ERRCODE = 'null_value_not_allowed',
            HINT = 'To publish a tombstone, call weir.tombstone(topic, key).';
    ELSIF wrong.n IS NOT NULL THEN
        PERFORM weir.too_large(about.name, wrong.size, about.event_max);
    END IF;
    me := pg_current_xact_id();
    INSERT INTO weir.inbox (xact, topic, key, value, headers, size, base)
    SELECT me, about.id, weir.octets(x.key), weir.octets(x.value), post_all.headers,
           overhead + coalesce(octet_length(x.key), 0) + octet_length(weir.octets(x.value)), wanted
    FROM ROWS FROM (unnest(keys), unnest("values")) WITH ORDINALITY AS x(key, value, n)
    ORDER BY x.n;
    PERFORM weir.notify_mover();
    RETURN cardinality("values");
END $$;
