-- What SQL sessions call to publish. It puts rows into the inbox (005_inbox.sql).

-- hushed is until when publishers need not notify, in seconds since 1970: because the mover looks every few milliseconds, or because nobody
-- listens. To commit a notification takes a lock that the whole server has once: that must not happen thousands of times a second. It is a
-- sequence because every publisher asks for it, and a sequence is the cheapest thing to ask: it has one version, which all see at once.
CREATE SEQUENCE weir.hushed;

SELECT setval('weir.hushed', 1);

-- A sequence weir.watching had this part before. It is left where it is: to drop it would wait for every session that has published and not
-- committed yet.

-- stir wakes the mover when the transaction commits, where it wants that.
CREATE OR REPLACE FUNCTION weir.stir() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    IF to_timestamp(pg_sequence_last_value('weir.hushed')) <= clock_timestamp() AND current_setting('weir.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('weir_inbox', '');
    END IF;
END $$;

-- post puts one event into the inbox. Who may call it may publish. All functions for single events are thin covers of this one.
--
-- It is called once a transaction, and then each statement, and each expression outside of one, costs as much as a row. So the usual case is
-- one statement and one condition; whatever is unusual, errors included, is the business of post_unusual and of stir.
CREATE OR REPLACE FUNCTION weir.post(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    me xid8 := pg_current_xact_id(); -- before the row's id, see weir.look
BEGIN
    INSERT INTO weir.inbox (xact, topic, key, value, size)
    SELECT me, t.id, post.key, post.value, 80 + coalesce(octet_length(post.key), 0) + octet_length(post.value)
    FROM weir.topic t
    WHERE t.name = post.topic AND post.headers = '{}' AND post.partition IS NULL
      AND 80 + coalesce(octet_length(post.key), 0) + octet_length(post.value) <= t.event_max; -- and a value that is not NULL
    IF FOUND AND to_timestamp(pg_sequence_last_value('weir.hushed')) > clock_timestamp() THEN -- nobody needs to be told
        RETURN;
    END IF;
    IF NOT FOUND THEN
        PERFORM weir.post_unusual(topic, key, value, headers, partition, tombstone, me);
    END IF;
    PERFORM weir.stir();
END $$;

-- post_unusual puts an event with headers, with a partition, or without a value into the inbox, or tells what is wrong with it.
CREATE OR REPLACE FUNCTION weir.post_unusual(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean, me xid8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    about weir.topic := weir.find_topic(topic);
    size  bigint;
BEGIN
    IF value IS NULL AND tombstone IS NOT TRUE THEN
        RAISE 'value is null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'To say that the key is gone, call weir.tombstone(topic, key).';
    END IF;
    IF value IS NULL AND key IS NULL THEN
        RAISE 'key is null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'A tombstone says that a key is gone: name the key.';
    END IF;
    IF partition IS NOT NULL THEN
        PERFORM weir.check_partition(about, partition);
    END IF;
    headers := weir.checked_headers(headers);
    size := weir.around(headers) + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0);
    IF size > about.event_max THEN
        PERFORM weir.too_large(topic, size, about.event_max);
    END IF;
    INSERT INTO weir.inbox (xact, topic, partition, key, value, headers, size)
    VALUES (me, about.id, partition, key, value, headers, size);
END $$;

-- publish: the event exists if the transaction commits, and does not if it rolls back, or back to a savepoint before it. A NULL key is
-- none. Without a partition the key decides, as with Kafka's clients. A literal counts as text, for key and value.
CREATE OR REPLACE FUNCTION weir.publish(topic text, key text, value bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), value, headers, partition, false);

CREATE OR REPLACE FUNCTION weir.publish(topic text, key text, value text, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), headers, partition, false);

CREATE OR REPLACE FUNCTION weir.publish(topic text, key text, value jsonb, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), convert_to(value::text, 'UTF8'), headers, partition, false);

CREATE OR REPLACE FUNCTION weir.publish(topic text, key bytea, value bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, key, value, headers, partition, false);

-- tombstone says that a key is gone: an event without a value.
CREATE OR REPLACE FUNCTION weir.tombstone(topic text, key text, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), NULL, headers, partition, true);

CREATE OR REPLACE FUNCTION weir.tombstone(topic text, key bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, key, NULL, headers, partition, true);

-- publish_all publishes one event for each value (text[], jsonb[] or bytea[]), in order. keys (text[] or bytea[]) has one for each value, or is
-- NULL: none has a key. It returns how many there were.
CREATE OR REPLACE FUNCTION weir.publish_all(topic text, keys anycompatiblearray, "values" anyarray, headers jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    about  weir.topic := weir.find_topic(topic);
    around bigint;
    wrong  record;
    me     xid8;
BEGIN
    IF "values" IS NULL THEN
        RAISE 'values is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'An empty array publishes nothing.';
    ELSIF pg_typeof("values") NOT IN ('text[]'::regtype, 'jsonb[]'::regtype, 'bytea[]'::regtype) THEN
        RAISE 'values is of type %', pg_typeof("values")
        USING ERRCODE = 'invalid_parameter_value', HINT = 'text[], jsonb[] or bytea[] is wanted: cast it.';
    ELSIF pg_typeof(keys) NOT IN ('text[]'::regtype, 'varchar[]'::regtype, 'bytea[]'::regtype) THEN
        RAISE 'keys is of type %', pg_typeof(keys)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'text[] or bytea[] is wanted: cast it.';
    ELSIF array_ndims("values") > 1 OR array_ndims(keys) > 1 THEN
        RAISE '% has more than one dimension', CASE WHEN array_ndims("values") > 1 THEN 'values' ELSE 'keys' END
        USING ERRCODE = 'invalid_parameter_value', HINT = 'One key and one value make an event: give two plain arrays.';
    ELSIF cardinality(keys) <> cardinality("values") THEN
        RAISE 'keys has % elements, and values has %', cardinality(keys), cardinality("values")
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Give each value its key, which may be null, or no keys at all: NULL.';
    END IF;
    headers := weir.checked_headers(headers);
    around := weir.around(headers);
    SELECT e.n, e.size INTO wrong
    FROM (
        SELECT x.n, around + coalesce(octet_length(x.key), 0) + octet_length(weir.octets(x.value)) AS size
        FROM ROWS FROM (unnest(keys), unnest("values")) WITH ORDINALITY AS x(key, value, n)
    ) AS e
    WHERE e.size IS NULL OR e.size > about.event_max ORDER BY e.n LIMIT 1;
    IF wrong.n IS NOT NULL AND wrong.size IS NULL THEN
        RAISE 'values: element % is null', wrong.n USING ERRCODE = 'null_value_not_allowed',
            HINT = 'To say that a key is gone, call weir.tombstone(topic, key).';
    ELSIF wrong.n IS NOT NULL THEN
        PERFORM weir.too_large(topic, wrong.size, about.event_max);
    END IF;
    me := pg_current_xact_id();
    INSERT INTO weir.inbox (xact, topic, key, value, headers, size)
    SELECT me, about.id, weir.octets(x.key), weir.octets(x.value), publish_all.headers,
           around + coalesce(octet_length(x.key), 0) + octet_length(weir.octets(x.value))
    FROM ROWS FROM (unnest(keys), unnest("values")) WITH ORDINALITY AS x(key, value, n)
    ORDER BY x.n;
    PERFORM weir.stir();
    RETURN cardinality("values");
END $$;

