-- How far a consumer has come, committed in the consumer's own transaction: what it did with the events and how far it came are one.
--
-- Two places hold a group's position. The one here is written by weir.commit_offset and locked for as long as the consumer's
-- transaction takes. The other is a key in weir.state, which Kafka clients and tools read and write; consumers' transactions never
-- lock it, for commits to the log do. The mover carries positions from here to there, by way of the inbox.
--
-- The younger of the two is the group's position. Which one that is can be told without a clock: a position here remembers the stamp that
-- the key had when it was committed, its base. A key with another stamp was written later, by somebody else, unless it says that the mover
-- carried it: then it came from here.

-- consumer names what is consumed. Its rows never change, so the lock on one stays quick to take: commits of one position queue for it.
CREATE TABLE weir.consumer (
    id        bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    grp       text COLLATE "C" NOT NULL,
    topic     uuid             NOT NULL,
    partition int              NOT NULL,
    UNIQUE (grp, topic, partition)
);

-- consumed holds one position for each consumer, newest turn first, as in weir.state: see 001_tables.sql.
CREATE TABLE weir.consumed (
    consumer     bigint NOT NULL,
    turn         bigint NOT NULL DEFAULT 0,
    writes       bigint NOT NULL DEFAULT 0,
    next_offset  bigint NOT NULL,
    base         bigint, -- NULL: there was no key, or it came from here
    committed_at timestamptz NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000
);

CREATE UNIQUE INDEX consumed_key ON weir.consumed (consumer, turn DESC);

-- escape writes a name as a part of a key: use/group does it with Go's url.PathEscape.
CREATE FUNCTION weir.escape(name text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN name ~ '^[a-zA-Z0-9_.~$&+=:@-]*$' THEN name
    ELSE (
        SELECT string_agg(
            CASE WHEN chr(b) ~ '[a-zA-Z0-9_.~$&+=:@-]' THEN chr(b) ELSE '%' || upper(lpad(to_hex(b), 2, '0')) END, '' ORDER BY i)
        FROM (
            SELECT i, get_byte(convert_to(name, 'UTF8'), i) AS b FROM generate_series(0, octet_length(name) - 1) AS i
        ) AS bytes
    )
END;

-- stamp tells one writing of a key from another.
CREATE FUNCTION weir.stamp(put_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (extract(epoch FROM put_at) * 1000000)::bigint;

-- told reads a value in which clients' own words stand. PostgreSQL's text takes all of them but the zero character.
CREATE FUNCTION weir.told(value bytea) RETURNS json
LANGUAGE sql IMMUTABLE
RETURN replace(convert_from(value, 'UTF8'), '\u0000', '\ufffd')::json;

-- is_carried tells whether a committed offset came from weir.commit_offset: its metadata says so, and names that offset. A Kafka client that
-- commits with the metadata that it fetched is not taken for the mover, but where it commits the very offset.
CREATE FUNCTION weir.is_carried(committed json) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN coalesce(committed ->> 'metadata' = 'weir.commit_offset ' || (committed ->> 'offset'), false);

-- find_position reads both places: the group's position, NULL where there is none, and the base for the next one.
CREATE FUNCTION weir.find_position(grp text, topic uuid, partition int, OUT consumer bigint, OUT place bigint, OUT base bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    own   weir.consumed;
    key   record;
    other json;
BEGIN
    SELECT c.id INTO consumer FROM weir.consumer c
    WHERE c.grp = find_position.grp AND c.topic = find_position.topic AND c.partition = find_position.partition;
    SELECT * INTO own FROM weir.consumed x WHERE x.consumer = find_position.consumer ORDER BY x.turn DESC LIMIT 1;
    SELECT s.value, weir.stamp(s.put_at) AS stamp INTO key FROM weir.state s
    WHERE s.key = 'group/offset/' || weir.escape(grp) || '/' || replace(topic::text, '-', '') || '/' || partition
    ORDER BY s.turn DESC LIMIT 1;
    place := own.next_offset;
    IF key.value IS NOT NULL THEN
        other := weir.told(key.value);
        IF NOT weir.is_carried(other) THEN
            base := key.stamp;
            IF own.next_offset IS NULL OR own.base IS DISTINCT FROM key.stamp THEN
                place := (other ->> 'offset')::bigint;
            END IF;
        ELSIF own.next_offset IS NULL THEN
            place := (other ->> 'offset')::bigint;
        END IF;
    END IF;
END $$;

-- check_member refuses who is not, or no longer, a member of the group.
CREATE FUNCTION weir.check_member(grp text, member text, generation int) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
AS $$
DECLARE
    about json;
BEGIN
    SELECT weir.told(s.value) INTO about
    FROM weir.state s WHERE s.key = 'group/state/' || weir.escape(grp) ORDER BY s.turn DESC LIMIT 1;
    IF generation IS NOT NULL AND generation IS DISTINCT FROM (about ->> 'generation')::int THEN
        RAISE 'generation % of group "%" is over: it is at %', generation, grp, coalesce(about ->> 'generation', 'none')
        USING ERRCODE = 'WE005', HINT = 'Roll back, and go on with the partitions that the group gives you now.';
    END IF;
    IF member IS NOT NULL AND NOT EXISTS (
        SELECT FROM json_array_elements(about -> 'members') AS m WHERE m ->> 'id' = member
    ) THEN
        RAISE '"%" is not a member of group "%"', member, grp
        USING ERRCODE = 'WE005', HINT = 'Roll back, and join the group again.';
    END IF;
END $$;

-- check_consumer holds the arguments that position and commit_offset share to the rules.
CREATE FUNCTION weir.check_consumer(grp text, topic weir.topic, partition int) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    IF grp IS NULL THEN
        RAISE 'grp is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Name the consumer group.';
    ELSIF octet_length(grp) NOT BETWEEN 1 AND 512 THEN
        RAISE 'grp has % bytes', octet_length(grp)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'A group''s name has 1 to 512 bytes.';
    END IF;
    PERFORM weir.check_partition(topic, partition);
END $$;

-- position tells which event a group handles next in a partition; NULL where it has committed nothing.
CREATE FUNCTION weir.position(grp text, topic text, partition int) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    about weir.topic := weir.find_topic(topic);
BEGIN
    PERFORM weir.check_consumer(grp, about, partition);
    RETURN (weir.find_position(grp, about.id, partition)).place;
END $$;

-- commit_offset moves a group's position to next_offset, if the transaction commits. It is refused
--
--   with WE004 unless next_offset is above the position, and from_offset, where it is given, is the position;
--   with WE005 unless generation, where it is given, is the group's, and member, where it is given, is in the group.
--
-- Of two transactions at once for one position the second waits for the first, and then finds what that one committed.
CREATE FUNCTION weir.commit_offset(
    grp text, topic text, partition int, next_offset bigint,
    from_offset bigint DEFAULT NULL, member text DEFAULT NULL, generation int DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    about weir.topic := weir.find_topic(topic);
    at    record;
    own   bigint;
    me    xid8;
BEGIN
    PERFORM weir.check_consumer(grp, about, partition);
    IF next_offset IS NULL THEN
        RAISE 'next_offset is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'It is the offset of the next event to handle.';
    ELSIF next_offset < 0 OR from_offset < 0 THEN
        RAISE '% is negative', CASE WHEN next_offset < 0 THEN 'next_offset' ELSE 'from_offset' END
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Offsets count from 0.';
    END IF;
    IF generation IS NOT NULL OR member IS NOT NULL THEN
        PERFORM weir.check_member(grp, member, generation);
    END IF;

    -- Queue for the position. Only behind this lock is it read.
    FOR attempt IN 1..2 LOOP
        SELECT c.id INTO own FROM weir.consumer c
        WHERE c.grp = commit_offset.grp AND c.topic = about.id AND c.partition = commit_offset.partition FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO weir.consumer (grp, topic, partition) VALUES (grp, about.id, partition) ON CONFLICT DO NOTHING;
    END LOOP;
    IF own IS NULL THEN -- the topic was deleted, and the row forgotten, while we waited for it
        PERFORM weir.no_topic(topic);
    END IF;
    SELECT p.place, p.base INTO at FROM weir.find_position(grp, about.id, partition) AS p;
    IF from_offset IS NOT NULL AND from_offset <> at.place THEN
        RAISE 'group "%" is at offset % of partition % of topic "%", and not at %', grp, at.place, partition, topic, from_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and go on from %s: what was before it has been handled.', at.place);
    ELSIF next_offset <= at.place THEN
        RAISE 'group "%" is at offset % of partition % of topic "%" already, and % is not above it', grp, at.place, partition, topic, next_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and go on from %s: what was before it has been handled.', at.place);
    END IF;
    UPDATE weir.consumed x
    SET next_offset = commit_offset.next_offset, base = at.base, committed_at = clock_timestamp(),
        writes = x.writes + 1, turn = (x.writes + 1) / 64
    WHERE x.consumer = own AND x.turn = (SELECT max(y.turn) FROM weir.consumed y WHERE y.consumer = own);
    IF NOT FOUND THEN
        INSERT INTO weir.consumed (consumer, next_offset, base, committed_at) VALUES (own, next_offset, at.base, clock_timestamp());
    END IF;
    me := pg_current_xact_id();
    INSERT INTO weir.inbox (xact, topic, partition, size, grp, next_offset, base)
    VALUES (me, about.id, partition, 100, grp, next_offset, at.base);
END $$;

-- forget_consumers removes positions of topics that are gone, at most so many, and tells how many. A topic's id never comes back: one that
-- is made anew under the old name has none of them. All is seen in one snapshot, and a position comes after its topic: so none is taken for
-- gone whose topic is young. What a consumer's transaction holds is left for the next time. The plan: both tables once, joined by hash.
CREATE FUNCTION weir.forget_consumers(most int) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    forgotten bigint;
BEGIN
    WITH gone AS MATERIALIZED (
        SELECT c.id FROM weir.consumer c
        WHERE NOT EXISTS (SELECT FROM weir.topic t WHERE t.id = c.topic)
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), positions AS (
        DELETE FROM weir.consumed x USING gone g WHERE x.consumer = g.id
    )
    DELETE FROM weir.consumer c USING gone g WHERE c.id = g.id;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;

-- carry takes rows out of the inbox and writes the positions that they brought into the groups' keys, but for keys that somebody else wrote
-- since. guarded has those keys, and bases what was known of each; a key must not be at another stamp. The rest is for weir.commit. It
-- tells false, and has done nothing, where another mover is at it; the whole is undone with WE090 where one was there in between, and with
-- WE092 where a group moved on.
CREATE FUNCTION weir.carry(
    ids             bigint[],
    guarded         text[],
    bases           bigint[], -- −1: none
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
    OUT moved       boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    refused text[];
    wanted  int[];
    stale   int[];
BEGIN
    moved := weir.take(ids);
    IF NOT moved THEN
        RETURN;
    END IF;

    -- A commit of nothing locks the keys, in the order in which all commits do.
    PERFORM weir.commit('{}', keys, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '');
    refused := ARRAY(
        SELECT g.key
        FROM unnest(guarded, bases) AS g(key, base)
        CROSS JOIN LATERAL (
            SELECT s.value, weir.stamp(s.put_at) AS stamp FROM weir.state s WHERE s.key = g.key ORDER BY s.turn DESC LIMIT 1
        ) AS s
        WHERE s.stamp <> g.base AND NOT weir.is_carried(weir.told(s.value)));
    wanted := ARRAY(SELECT n FROM unnest(put_key) WITH ORDINALITY AS p(key, n) WHERE NOT p.key = ANY (refused) ORDER BY n);
    SELECT c.stale INTO stale
    FROM weir.commit(
        '{}', keys, '{}', '{}', '{}', '{}', '{}', '{}',
        check_entry, check_key, check_version,
        ARRAY(SELECT put_entry[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_key[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_version[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_start[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_size[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_base[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        body) AS c;
    IF cardinality(stale) > 0 THEN
        RAISE 'a group moved on' USING ERRCODE = 'WE092';
    END IF;
END $$;
