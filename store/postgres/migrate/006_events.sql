-- Reading the log with SQL: weir.events and weir.last_events give one row for each record.
--
--   events ── span_events ─┬─ topic_spans  which partitions, from where to where
--                          ├─ stretch      cuts a span into stretches of whole batches, one at a time, as rows are asked for
--                          └─ decode       the records of one stretch
--
-- events is one SELECT, which the planner puts in place of the call. So rows flow: LIMIT ends the reading, and only one stretch is
-- in memory. A function in PL/pgSQL gathers all its rows before it gives the first.
--
-- All of it sees the snapshot of the caller's statement: nothing that came after it began.

CREATE TYPE weir.event AS (
    partition   int,
    "offset"    bigint,
    "timestamp" timestamptz, -- NULL where the record has none
    key         bytea,
    key_text    text,        -- NULL where the key is not UTF-8, or holds a zero byte
    value       bytea,
    value_text  text,
    headers     jsonb,       -- see weir.headers
    compression text,        -- the codec, where a client compressed the batch: key, value and headers are then NULL,
    records     int          -- and this is how many records the row stands for; else 1
);

-- A number in a batch's records lies in groups of seven bits, the lowest first, each in a byte whose top bit says that another follows.
-- varint reads the one at a place; varint_size tells how many bytes it has. Both are so plain that the planner puts them in place of
-- their calls.
CREATE FUNCTION weir.long_varint(raw bytea, at int) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    n bigint := 0;
    b int;
BEGIN
    FOR i IN 0..9 LOOP
        b := get_byte(raw, at + i);
        n := n | ((b & 127)::bigint << 7 * i);
        EXIT WHEN b < 128;
    END LOOP;
    RETURN n;
END $$;

CREATE FUNCTION weir.varint(raw bytea, at int) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN get_byte(raw, at) < 128 THEN get_byte(raw, at)
    WHEN get_byte(raw, at + 1) < 128 THEN (get_byte(raw, at) & 127) + (get_byte(raw, at + 1) << 7)
    WHEN get_byte(raw, at + 2) < 128 THEN (get_byte(raw, at) & 127) + ((get_byte(raw, at + 1) & 127) << 7) + (get_byte(raw, at + 2) << 14)
    ELSE weir.long_varint(raw, at)
END;

CREATE FUNCTION weir.varint_size(raw bytea, at int) RETURNS int
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN get_byte(raw, at) < 128 THEN 1
    WHEN get_byte(raw, at + 1) < 128 THEN 2
    WHEN get_byte(raw, at + 2) < 128 THEN 3
    WHEN get_byte(raw, at + 3) < 128 THEN 4
    WHEN get_byte(raw, at + 4) < 128 THEN 5
    WHEN get_byte(raw, at + 5) < 128 THEN 6
    WHEN get_byte(raw, at + 6) < 128 THEN 7
    WHEN get_byte(raw, at + 7) < 128 THEN 8
    WHEN get_byte(raw, at + 8) < 128 THEN 9
    ELSE 10
END;

CREATE FUNCTION weir.int8_at(raw bytea, at int) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN ('x' || encode(substring(raw FROM at + 1 FOR 8), 'hex'))::bit(64)::bigint;

-- moment gives a time in milliseconds since 1970: NULL for −1, which is none, and infinity where PostgreSQL has no date any more.
CREATE FUNCTION weir.moment(ms bigint) RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE WHEN ms < 0 THEN NULL WHEN ms > 9224318015000000 THEN 'infinity' ELSE to_timestamp(ms::float8 / 1000) END;

-- text_of gives bytes as text, or NULL where they are none.
CREATE FUNCTION weir.text_of(bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire THEN
    RETURN NULL;
END $$;

-- headers gives the headers of a record, whose count is at a place, as one object. With texts it fails where one is no text.
--
--   {"name": "value"}      a value that is text
--   {"name": null}         a value that is null
--   {"name": "\x00ff"}     bytes that are no text, as PostgreSQL writes them; so ("headers" ->> 'name')::bytea reads them.
--                          Text that itself begins with \x is shown like this, too
--   {"name": ["a", "b"]}   a name that comes more than once, in order
CREATE FUNCTION weir.headers(raw bytea, at int, texts boolean) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    few constant int := 16;
    count  int := weir.varint(raw, at) >> 1;
    size   int;
    field  bytea;
    shown  text;
    names  text[] := '{}';
    fields text[] := '{}';
    again  boolean := count > few; -- a name may come again: not looked for among many, which would take count² comparisons
BEGIN
    at := at + weir.varint_size(raw, at);
    FOR i IN 1..2 * count LOOP -- a name, a value, a name, a value, …
        size := weir.varint(raw, at);
        at := at + weir.varint_size(raw, at);
        shown := NULL;
        IF size <> 1 THEN -- 1 is −1, null
            size := size >> 1;
            field := substring(raw FROM at + 1 FOR size);
            at := at + size;
            shown := CASE WHEN texts THEN convert_from(field, 'UTF8') ELSE weir.text_of(field) END;
            IF shown IS NULL OR starts_with(shown, E'\\x') THEN
                shown := E'\\x' || encode(field, 'hex'); -- E: whatever standard_conforming_strings is
            END IF;
        END IF;
        IF i % 2 = 0 THEN
            fields := fields || shown;
        ELSE
            again := again OR shown = ANY (names);
            names := names || shown;
        END IF;
    END LOOP;
    IF NOT again THEN
        RETURN jsonb_object(names, fields);
    END IF;
    RETURN jsonb_object_agg(x.name, CASE cardinality(x.fields) WHEN 1 THEN to_jsonb(x.fields[1]) ELSE to_jsonb(x.fields) END)
    FROM (
        SELECT u.name, array_agg(u.field ORDER BY u.nth) AS fields
        FROM unnest(names, fields) WITH ORDINALITY AS u(name, field, nth)
        GROUP BY u.name
    ) AS x;
END $$;

-- decode gives the records of a stretch.
--
-- The layout, from Kafka's protocol guide; magic 2 is the only one that a log holds:
--
--   0 base offset │ 8 length │ 12 epoch │ 16 magic │ 17 CRC │ 21 attributes │ 23 last delta │ 27 base time │ 35 max time │ 43 … │ 61 records
--   record: size │ attributes 1 │ time − base time │ offset − base offset │ key size, key │ value size, value │ count, headers
--
-- Its speed comes from what happens for each record: a dozen and a half of assignments, and no statement.
CREATE FUNCTION weir.decode(id bigint, low bigint, high bigint)
RETURNS TABLE (
    "offset" bigint, "timestamp" timestamptz, key bytea, key_text text, value bytea, value_text text,
    headers jsonb, compression text, records int
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
ROWS 1000
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    codecs constant text[] := '{gzip, snappy, lz4, zstd}';
    p     weir.partition;
    r     weir.run;
    b     record;
    raw   bytea;
    flags int;
    base  bigint; -- what the times of records are counted from
    tick  int;    -- 0 where all records have the same time
    time  bigint; -- of a record
    n     bigint; -- the offset of the next record
    stop  bigint; -- the offset where the batch ends
    start int;    -- where in raw the next record begins
    at    int;
    size  bigint;
    texts boolean := true; -- until bytes are met that are no text
BEGIN
    SELECT * INTO p FROM weir.partition x WHERE x.id = decode.id ORDER BY x.turn DESC LIMIT 1;
    SELECT * INTO STRICT r FROM weir.runs(p, low) LIMIT 1;
    FOR b IN EXECUTE format(
        'SELECT base_offset, min(records) AS records, min(size) AS size, string_agg(bytes, '''' ORDER BY piece) AS bytes
         FROM weir.batch_%1$s
         WHERE partition_id = $1
           AND base_offset >= (SELECT base_offset FROM weir.batch_%1$s
                               WHERE partition_id = $1 AND base_offset <= $2 ORDER BY base_offset DESC LIMIT 1)
           AND base_offset < $3
         GROUP BY base_offset
         ORDER BY base_offset', r.segment)
    USING p.id, low, high
    LOOP
        raw := b.bytes;
        IF octet_length(raw) <> b.size THEN
            RAISE 'batch % of partition % is % bytes long, and % came back', b.base_offset, p.id, b.size, octet_length(raw)
            USING ERRCODE = 'data_corrupted';
        END IF;
        n := b.base_offset;
        stop := n + b.records;
        flags := get_byte(raw, 22);

        IF flags & 7 > 0 THEN -- compressed
            "offset" := greatest(n, low);
            "timestamp" := weir.moment(weir.int8_at(raw, 35));
            key := NULL;
            key_text := NULL;
            value := NULL;
            value_text := NULL;
            headers := NULL;
            compression := coalesce(codecs[flags & 7], 'codec ' || (flags & 7));
            records := stop - "offset";
            RETURN NEXT;
            CONTINUE;
        END IF;

        compression := NULL;
        records := 1;
        tick := CASE WHEN flags & 8 = 0 THEN 1 ELSE 0 END;
        base := weir.int8_at(raw, CASE tick WHEN 1 THEN 27 ELSE 35 END);
        start := 61;
        WHILE n < low LOOP -- what was trimmed, or not asked for
            start := start + weir.varint_size(raw, start) + (weir.varint(raw, start) >> 1);
            n := n + 1;
        END LOOP;
        WHILE n < stop LOOP
            BEGIN
                WHILE n < stop LOOP
                    at := start + weir.varint_size(raw, start) + 1;
                    size := weir.varint(raw, at);
                    time := base + tick * (((size >> 1) & 9223372036854775807) # -(size & 1));
                    at := at + weir.varint_size(raw, at);
                    at := at + weir.varint_size(raw, at);
                    size := weir.varint(raw, at);
                    at := at + weir.varint_size(raw, at);
                    IF size = 1 THEN -- −1, null
                        key := NULL;
                        key_text := NULL;
                    ELSE
                        size := size >> 1;
                        key := substring(raw FROM at + 1 FOR size::int);
                        key_text := CASE WHEN texts THEN convert_from(key, 'UTF8') ELSE weir.text_of(key) END;
                        at := at + size;
                    END IF;
                    size := weir.varint(raw, at);
                    at := at + weir.varint_size(raw, at);
                    IF size = 1 THEN
                        value := NULL;
                        value_text := NULL;
                    ELSE
                        size := size >> 1;
                        value := substring(raw FROM at + 1 FOR size::int);
                        value_text := CASE WHEN texts THEN convert_from(value, 'UTF8') ELSE weir.text_of(value) END;
                        at := at + size;
                    END IF;
                    IF get_byte(raw, at) = 0 THEN
                        headers := '{}';
                        start := at + 1;
                    ELSE
                        headers := weir.headers(raw, at, texts);
                        start := start + weir.varint_size(raw, start) + (weir.varint(raw, start) >> 1);
                    END IF;
                    "offset" := n;
                    "timestamp" := weir.moment(time);
                    RETURN NEXT;
                    n := n + 1;
                END LOOP;
            EXCEPTION WHEN character_not_in_repertoire THEN
                texts := false; -- once more, from this record on, each by itself
            END;
        END LOOP;
    END LOOP;
END $$;

-- stretch tells where the stretch of whole batches ends that begins with the batch of an offset: after some 256 KiB, or with its segment.
-- From then on the segment stays until the transaction ends.
CREATE FUNCTION weir.stretch(id bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    p    weir.partition;
    r    weir.run;
    stop bigint;
BEGIN
    SELECT * INTO p FROM weir.partition x WHERE x.id = stretch.id ORDER BY x.turn DESC LIMIT 1;
    SELECT * INTO STRICT r FROM weir.runs(p, low) LIMIT 1;
    EXECUTE format(
        'SELECT base_offset FROM weir.batch_%1$s
         WHERE partition_id = $1 AND base_offset > $2 AND base_offset < $3 AND piece = 0
           AND byte >= 262144 + (SELECT byte FROM weir.batch_%1$s
                                 WHERE partition_id = $1 AND base_offset <= $2 ORDER BY base_offset DESC LIMIT 1)
         ORDER BY base_offset LIMIT 1', r.segment)
    INTO stop USING p.id, low, least(high, r.next_offset);
    RETURN coalesce(stop, least(high, r.next_offset));
EXCEPTION WHEN undefined_table THEN
    RAISE 'offset % was dropped by retention after this transaction looked where it is', low
    USING ERRCODE = 'serialization_failure', HINT = 'Read again, in a new transaction.';
END $$;

-- topic_spans gives the partitions of a topic that hold anything from an offset on; or, for the tail, their last so many records.
CREATE FUNCTION weir.topic_spans(want_topic text, want_partition int, want_from bigint, want_most bigint, tail boolean)
RETURNS TABLE (partition int, id bigint, low bigint, high bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
ROWS 4
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    about weir.topic := weir.find_topic(want_topic);
BEGIN
    IF want_from IS NULL AND NOT tail THEN
        RAISE 'from_offset is null' USING ERRCODE = 'null_value_not_allowed', HINT = '0 reads from the beginning.';
    ELSIF want_from < 0 THEN
        RAISE 'from_offset is %', want_from
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Offsets count from 0. weir.last_events reads from the end.';
    ELSIF want_most IS NULL AND tail THEN
        RAISE 'max_events is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'weir.events reads all there are.';
    ELSIF want_most < 0 THEN
        RAISE 'max_events is %', want_most USING ERRCODE = 'invalid_parameter_value', HINT = 'A number from 0 on is wanted.';
    ELSIF want_partition IS NOT NULL THEN
        PERFORM weir.check_partition(about, want_partition);
    END IF;
    RETURN QUERY
    SELECT spans.*
    FROM (
        SELECT (u.nth - 1)::int, x.id,
               greatest(x.first_offset, CASE WHEN tail THEN x.next_offset - least(want_most, x.next_offset) ELSE want_from END) AS low,
               x.next_offset AS high
        FROM unnest(about.partitions) WITH ORDINALITY AS u(id, nth)
        CROSS JOIN LATERAL (
            SELECT y.id, y.first_offset, y.next_offset FROM weir.partition y WHERE y.id = u.id ORDER BY y.turn DESC LIMIT 1
        ) AS x
        WHERE want_partition IS NULL OR u.nth = want_partition + 1
        ORDER BY u.nth
    ) AS spans
    WHERE spans.low < spans.high;
END $$;

CREATE FUNCTION weir.span_events(partition int, id bigint, low bigint, high bigint) RETURNS SETOF weir.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE walk(low, high) AS (
        SELECT span_events.low, weir.stretch(span_events.id, span_events.low, span_events.high)
        UNION ALL
        SELECT w.high, weir.stretch(span_events.id, w.high, span_events.high) FROM walk AS w WHERE w.high < span_events.high
    )
    SELECT span_events.partition, e."offset", e."timestamp", e.key, e.key_text, e.value, e.value_text, e.headers, e.compression, e.records
    FROM walk AS w
    CROSS JOIN LATERAL weir.decode(span_events.id, w.low, w.high) AS e;
END;

-- events reads a topic from an offset on: one partition, or one after the other; all there is, or at most so many rows. An offset
-- that is not held any more reads from the first that is; one that is not there yet reads nothing.
CREATE FUNCTION weir.events(topic text, from_offset bigint DEFAULT 0, partition int DEFAULT NULL, max_events bigint DEFAULT NULL)
RETURNS SETOF weir.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT e.*
    FROM weir.topic_spans(events.topic, events.partition, events.from_offset, events.max_events, false) AS s
    CROSS JOIN LATERAL weir.span_events(s.partition, s.id, s.low, s.high) AS e
    LIMIT CASE WHEN events.max_events >= 0 THEN events.max_events END; -- topic_spans refuses the others
END;

-- last_events reads the last so many records of a partition, or of each.
CREATE FUNCTION weir.last_events(topic text, max_events bigint DEFAULT 10, partition int DEFAULT NULL)
RETURNS SETOF weir.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT e.*
    FROM weir.topic_spans(last_events.topic, last_events.partition, NULL, last_events.max_events, true) AS s
    CROSS JOIN LATERAL weir.span_events(s.partition, s.id, s.low, s.high) AS e;
END;
