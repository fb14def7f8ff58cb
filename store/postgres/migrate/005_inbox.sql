-- The inbox: what SQL sessions publish, in their own transactions. A mover carries it into the log once it is committed (inbox.go).
--
-- A session's transaction may stay open for an hour. So it touches nothing that a commit to the log touches: it adds rows here,
-- and that is all. Where in the log they come to stand is decided by the move, which holds a partition for milliseconds.
--
-- A row is deleted by the transaction that appends it to the log. So whatever can be seen here is not moved yet, and a row waits for
-- nothing but the next look.
CREATE TABLE weir.inbox (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xact         xid8        NOT NULL, -- that wrote the row; always taken before the id, see weir.look
    topic        uuid        NOT NULL,
    partition    int,                  -- of the topic; NULL: the mover chooses, by the key
    key          bytea,
    value        bytea,                -- NULL: a tombstone
    headers      jsonb,
    size         int         NOT NULL, -- of a batch with this one record, at most
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- With a group the row is no event, but how far the group has come (008_commit_offset.sql).
    grp          text,
    next_offset  bigint,
    base         bigint
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000,
    vacuum_truncate = off -- to shorten the table it would lock out everybody for a moment
);

CREATE INDEX inbox_xact ON weir.inbox (xact, id);

-- mover is one row, which never changes. Its lock is held by the move under way: one at a time in the whole database. No session can take
-- it: none has a right to this table.
CREATE TABLE weir.mover (one boolean PRIMARY KEY DEFAULT true CHECK (one));

INSERT INTO weir.mover DEFAULT VALUES;

-- incarnation says that the server lost nothing since this row was written: after a crash PostgreSQL empties unlogged tables. Numbers of
-- transactions and ids of rows that were lost in a crash are given out again, and what a mover remembered of them is not true any more.
CREATE UNLOGGED TABLE weir.incarnation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  uuid    NOT NULL DEFAULT gen_random_uuid()
);

-- hushed is until when publishers need not notify, in seconds since 1970: because the mover looks every few milliseconds, or because nobody
-- listens. To commit a notification takes a lock that the whole server has once: that must not happen thousands of times a second. It is a
-- sequence because every publisher asks for it, and a sequence is the cheapest thing to ask: it has one version, which all see at once.
CREATE SEQUENCE weir.hushed;

SELECT setval('weir.hushed', 1);

-- topic is what SQL needs to know of each topic, narrow: its value in weir.state is JSON that grows with the partitions, and whoever publishes
-- an event looks here. It is written by whoever writes that value, in the same transaction.
CREATE TABLE weir.topic (
    name       text COLLATE "C" PRIMARY KEY,
    id         uuid     NOT NULL,
    event_max  int      NOT NULL, -- how large an event may be, as weir.inbox counts it in size
    partitions bigint[] NOT NULL, -- their numbers in weir.partition
    settings   jsonb    NOT NULL  -- those that were set; for the others Kafka's defaults hold
);

-- event_most bounds an event, whatever its topic allows. A row of the inbox goes through memory as a whole, several times over: one of
-- hundreds of megabytes could make every look fail, and nobody's events would be carried any more.
CREATE FUNCTION weir.event_most() RETURNS int LANGUAGE sql IMMUTABLE RETURN 16777216;

-- described gives the row of weir.topic for a topic's key and value in weir.state.
CREATE FUNCTION weir.described(key text, value bytea) RETURNS weir.topic
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT substr(key, 7),
           (t.about ->> 'id')::uuid,
           least(coalesce((t.about #>> '{config,max.message.bytes}')::bigint, 1048588), weir.event_most())::int,
           ARRAY(SELECT p.id::bigint FROM jsonb_array_elements_text(t.about -> 'partitions') WITH ORDINALITY AS p(id, nth) ORDER BY p.nth),
           coalesce(t.about -> 'config', '{}')
    FROM (SELECT convert_from(value, 'UTF8')::jsonb AS about) AS t;
END;

-- describe keeps weir.topic true to weir.state. Whoever commits holds the key's lock, so two never meet here.
CREATE FUNCTION weir.describe() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    DELETE FROM weir.topic t WHERE t.name = substr(coalesce(NEW.key, OLD.key), 7);
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO weir.topic SELECT d.* FROM weir.described(NEW.key, NEW.value) AS d;
    END IF;
    RETURN NULL;
END $$;

-- The first of these locks out commits until the migration is done. So what was written before is seen below, and what comes later runs the triggers.
CREATE TRIGGER made AFTER INSERT ON weir.state FOR EACH ROW WHEN (starts_with(NEW.key, 'topic/')) EXECUTE FUNCTION weir.describe();
CREATE TRIGGER altered AFTER UPDATE ON weir.state FOR EACH ROW WHEN (starts_with(NEW.key, 'topic/')) EXECUTE FUNCTION weir.describe();
CREATE TRIGGER deleted AFTER DELETE ON weir.state FOR EACH ROW WHEN (starts_with(OLD.key, 'topic/')) EXECUTE FUNCTION weir.describe();

INSERT INTO weir.topic
SELECT d.* FROM weir.state s CROSS JOIN LATERAL weir.described(s.key, s.value) AS d WHERE starts_with(s.key, 'topic/');

-- no_topic explains why there is no topic of that name.
CREATE FUNCTION weir.no_topic(topic text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    IF topic IS NULL THEN
        RAISE 'topic is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Name the topic.';
    ELSIF topic !~ '^[a-zA-Z0-9._-]{1,249}$' OR topic IN ('.', '..') THEN
        RAISE 'topic "%" cannot be a topic''s name', left(topic, 64)
        USING ERRCODE = 'invalid_parameter_value',
              HINT = 'A name has 1 to 249 of the characters a-z, A-Z, 0-9, ".", "_" and "-", and is not "." or "..".';
    END IF;
    RAISE 'there is no topic "%"', topic
    USING ERRCODE = 'WE001', HINT = format('Create it first: weir topic create %s', topic);
END $$;

-- find_topic returns the topic of a name.
CREATE FUNCTION weir.find_topic(topic text) RETURNS weir.topic
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    found_topic weir.topic;
BEGIN
    SELECT * INTO found_topic FROM weir.topic t WHERE t.name = find_topic.topic;
    IF NOT FOUND THEN
        PERFORM weir.no_topic(topic);
    END IF;
    RETURN found_topic;
END $$;

-- stir wakes the mover when the transaction commits, where it wants that.
CREATE FUNCTION weir.stir() RETURNS void
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
CREATE FUNCTION weir.post(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean) RETURNS void
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
CREATE FUNCTION weir.post_unusual(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean, me xid8) RETURNS void
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

CREATE FUNCTION weir.check_partition(topic weir.topic, partition int) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    n int := cardinality(topic.partitions);
BEGIN
    IF partition IS NULL THEN
        RAISE 'partition is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Partitions count from 0.';
    ELSIF partition < 0 OR partition >= n THEN
        RAISE 'topic "%" has no partition %', topic.name, partition
        USING ERRCODE = 'WE002', HINT = format('It has the partitions 0 to %s.', n - 1);
    END IF;
END $$;

-- checked_headers returns headers as they stand in the inbox: NULL for none.
CREATE FUNCTION weir.checked_headers(headers jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    wrong record;
BEGIN
    IF headers IS NULL OR headers = '{}' THEN
        RETURN NULL;
    ELSIF jsonb_typeof(headers) <> 'object' THEN
        RAISE 'headers is of type %', jsonb_typeof(headers)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'An object is wanted, such as {"source": "billing"}.';
    END IF;
    SELECT h.key, jsonb_typeof(h.value) AS type INTO wrong
    FROM jsonb_each(headers) AS h WHERE jsonb_typeof(h.value) NOT IN ('string', 'null') LIMIT 1;
    IF FOUND THEN
        RAISE 'headers: "%" is of type %', wrong.key, wrong.type
        USING ERRCODE = 'invalid_parameter_value', HINT = 'A header is a string, or null.';
    END IF;
    RETURN headers;
END $$;

-- around tells how many bytes a batch with one record has beside its key and its value, at most: 80, and around a header less than the
-- punctuation of its JSON.
CREATE FUNCTION weir.around(headers jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 80 + coalesce(octet_length(headers::text), 0);

CREATE FUNCTION weir.too_large(topic text, size bigint, most int) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    RAISE 'the event is too large for topic "%": % bytes with key, headers and framing, and the limit is %', topic, size, most
    USING ERRCODE = 'WE003',
          HINT = CASE WHEN most < weir.event_most() THEN 'Raise max.message.bytes of the topic, or keep' ELSE 'No topic takes more from SQL: keep' END
                 || ' large values elsewhere and publish where they are.';
END $$;

CREATE FUNCTION weir.octets(value text) RETURNS bytea LANGUAGE sql IMMUTABLE RETURN convert_to(value, 'UTF8');
CREATE FUNCTION weir.octets(value jsonb) RETURNS bytea LANGUAGE sql IMMUTABLE RETURN convert_to(value::text, 'UTF8');
CREATE FUNCTION weir.octets(value bytea) RETURNS bytea LANGUAGE sql IMMUTABLE RETURN value;

-- publish: the event exists if the transaction commits, and does not if it rolls back, or back to a savepoint before it. A NULL key is
-- none. Without a partition the key decides, as with Kafka's clients. A literal counts as text, for key and value.
CREATE FUNCTION weir.publish(topic text, key text, value bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), value, headers, partition, false);

CREATE FUNCTION weir.publish(topic text, key text, value text, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), headers, partition, false);

CREATE FUNCTION weir.publish(topic text, key text, value jsonb, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), convert_to(value::text, 'UTF8'), headers, partition, false);

CREATE FUNCTION weir.publish(topic text, key bytea, value bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, key, value, headers, partition, false);

-- tombstone says that a key is gone: an event without a value.
CREATE FUNCTION weir.tombstone(topic text, key text, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), NULL, headers, partition, true);

CREATE FUNCTION weir.tombstone(topic text, key bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, key, NULL, headers, partition, true);

-- publish_all publishes one event for each value (text[], jsonb[] or bytea[]), in order. keys (text[] or bytea[]) has one for each value, or is
-- NULL: none has a key. It returns how many there were.
CREATE FUNCTION weir.publish_all(topic text, keys anycompatiblearray, "values" anyarray, headers jsonb DEFAULT '{}') RETURNS bigint
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

-- incarnation names the server, and the time since its last crash. 0: nobody wrote the row since.
CREATE FUNCTION weir.incarnation() RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce((SELECT hashtextextended(format('%s %s %s', i.id, extract(epoch FROM pg_postmaster_start_time()), d.oid), 0)
                     FROM weir.incarnation i, pg_database d WHERE d.datname = current_database()), 0);
END;

-- look shows the mover what is new, in the order of ids: first a row about the inbox itself, then rows of it.
--
-- The inbox is full of entries of rows long gone wherever some transaction, anywhere in the database, may still see them. So a look goes
-- only where something new can be:
--
--   done  a snapshot. All rows that can be seen in it have been moved, or are left on purpose.
--   low   an id. Rows of transactions of which done does not know yet have a higher one.
--
-- New is a row with an id above low; or below it, of a transaction that was open in done, and is not any more. Transactions that are still
-- open cost nothing. That low is what it says is the mover's duty: it is an id that was given out before some transaction began that
-- done knows as ended. What done does not know began later still, and takes its ids after it began.
--
-- A transaction's number that was not given out yet came with a dump, from another server. What has it is there.
--
-- A round moves what can be seen in one snapshot, goal (NULL: that of this look), however many looks that takes; after is how far it
-- has come. Rows that are committed meanwhile wait for the next round, else one might overtake another that was before it.
CREATE FUNCTION weir.look(done pg_snapshot, low bigint, goal pg_snapshot, after bigint, most int, room bigint)
RETURNS TABLE (
    seen text, last bigint, incarnation bigint, hushed int, -- this snapshot, the last id given out, see incarnation(), weir.hushed from now
    id bigint, topic uuid, partition int, key bytea, value bytea, headers text, size int, published_at timestamptz,
    grp text, next_offset bigint, base bigint
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    until  pg_snapshot := coalesce(goal, pg_current_snapshot());
    unused xid8        := pg_snapshot_xmax(pg_current_snapshot()); -- this number, and all above
BEGIN
    SELECT pg_current_snapshot()::text, CASE WHEN q.is_called THEN q.last_value ELSE 0 END, weir.incarnation(),
           greatest(0, pg_sequence_last_value('weir.hushed') - extract(epoch FROM clock_timestamp()))::int
    INTO seen, last, incarnation, hushed
    FROM weir.inbox_id_seq q;
    RETURN NEXT;
    RETURN QUERY
    SELECT NULL::text, NULL::bigint, NULL::bigint, NULL::int,
           f.id, f.topic, f.partition, f.key, f.value, f.headers::text, f.size, f.published_at, f.grp, f.next_offset, f.base
    FROM (
        SELECT n.*, sum(n.size) OVER (ORDER BY n.id) - n.size AS before
        FROM (
            (
                SELECT i.*
                FROM pg_snapshot_xip(done) AS x
                CROSS JOIN LATERAL (
                    SELECT * FROM weir.inbox w WHERE w.xact = x AND w.id > after AND w.id <= low ORDER BY w.id LIMIT most
                ) AS i
                WHERE pg_visible_in_snapshot(x, until) AND after < low
            )
            UNION ALL
            (
                SELECT * FROM weir.inbox w
                WHERE w.id > greatest(after, low)
                  AND (pg_visible_in_snapshot(w.xact, until) OR w.xact >= unused)
                  AND NOT pg_visible_in_snapshot(w.xact, done)
                ORDER BY w.id LIMIT most
            )
            ORDER BY id LIMIT most
        ) AS n
    ) AS f
    WHERE f.before < room
    ORDER BY f.id;
END $$;

-- take deletes rows of the inbox, for whoever puts what was made of them into the log. It tells false, and has done nothing, where another
-- mover is at it or was there before; the whole is undone with WE090 where it was there in between.
CREATE FUNCTION weir.take(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    deleted bigint;
BEGIN
    PERFORM FROM weir.mover m FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR cardinality(ids) > 0 AND NOT EXISTS (SELECT FROM weir.inbox i WHERE i.id = ids[1]) THEN
        RETURN false;
    END IF;
    DELETE FROM weir.inbox i WHERE i.id = ANY (ids);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted <> cardinality(ids) THEN
        RAISE 'another mover took % of % rows', cardinality(ids) - deleted, cardinality(ids) USING ERRCODE = 'WE090';
    END IF;
    RETURN true;
END $$;

-- move takes rows out of the inbox and appends to the log what was made of them, or does neither: see take and weir.commit. The whole is undone
-- with WE091 where a partition is gone.
CREATE FUNCTION weir.move(
    ids             bigint[],
    partitions      bigint[],
    keys            text[],
    batch_entry     int[],
    batch_partition bigint[],
    batch_records   int[],
    batch_time      bigint[],
    batch_start     int[],
    batch_size      int[],
    check_entry     int[],
    check_key       text[],
    check_version   bigint[],
    put_entry       int[],
    put_key         text[],
    put_version     bigint[],
    put_start       int[],
    put_size        int[],
    put_base        int[],
    body            bytea,
    OUT moved       boolean,
    OUT bases       bigint[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    homeless int[];
BEGIN
    moved := weir.take(ids); -- the rows before the partitions: those are held by nobody longer than need be
    IF moved AND cardinality(batch_partition) > 0 THEN
        SELECT c.bases, c.homeless INTO bases, homeless
        FROM weir.commit(partitions, keys, batch_entry, batch_partition, batch_records, batch_time, batch_start, batch_size,
                         check_entry, check_key, check_version,
                         put_entry, put_key, put_version, put_start, put_size, put_base, body) AS c;
        IF cardinality(homeless) > 0 THEN
            RAISE 'a partition is gone' USING ERRCODE = 'WE091';
        END IF;
    END IF;
END $$;
