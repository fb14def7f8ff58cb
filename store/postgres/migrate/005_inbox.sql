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
