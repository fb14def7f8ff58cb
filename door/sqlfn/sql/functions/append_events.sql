-- append_events appends events to a stream, if the transaction commits. A role that may call it may append; append and append_all call it. It returns the stream's version
-- after the events, and fails with
--
--   WE011 if the stream is not as expected;      WE013 if the stream is archived;
--   WE012 if there is no such category;          WE014 if events with these ids are there at the expected version, with other content.
--
-- It holds the key of the stream's head until the transaction ends (weir.hold), and adds rows to weir.appended and weir.held, and a row to the inbox that tells the mover
-- (door/sqlfn/append.go). docs/decisions/an-append-in-a-transaction-holds-its-stream.md says why that is enough.
CREATE OR REPLACE FUNCTION weir.append_events(
    category text, stream text, expected text, types text[], data bytea[], metadata jsonb[], ids text[], at timestamptz[]
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    about  weir.topic := weir.find_category(category);
    wanted bigint; -- NULL: no version is expected
    fits   boolean;
    called timestamptz := clock_timestamp();
    most   bigint := least(coalesce((about.settings ->> 'max.message.bytes')::bigint, 1048588), weir.event_most());
    key    text := weir.stream_head(about.id, stream);
    found_ record;
    after  bigint; -- the version of the key, once this is carried
    size   bigint;
    me     xid8;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'weir.append needs a READ COMMITTED transaction, but this one is %', upper(current_setting('transaction_isolation'))
        USING ERRCODE = 'feature_not_supported', HINT = 'The snapshot of such a transaction can be older than the call, and then shows an old version of the stream.';
    ELSIF expected IS NULL THEN
        RAISE 'expected is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the version that the stream must have, or none, exists or any.';
    ELSIF expected !~ '^[0-9]{1,18}$' AND expected NOT IN ('none', 'exists', 'any') THEN
        RAISE 'expected is "%"', left(expected, 64)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be the version that the stream must have, from 0 on, or none, exists or any.';
    END IF;
    size := weir.check_events(stream, types, data, metadata, ids, at);
    IF size > most THEN
        RAISE 'the events are too large for category "%": they take % bytes with names, metadata and framing, and the limit is %', category, size, most
        USING ERRCODE = 'WE003', HINT = CASE WHEN most < weir.event_most() THEN 'Append fewer events in one call, or raise max.message.bytes of the category.'
            ELSE 'No category takes more from SQL in one call: append fewer events in one call.' END;
    END IF;

    PERFORM weir.hold(key);
    SELECT * INTO found_ FROM weir.find_stream(key); -- one statement after hold: it sees each earlier append either in the head or in weir.appended
    IF expected NOT IN ('none', 'exists', 'any') THEN
        wanted := expected;
    END IF;
    fits := CASE expected WHEN 'any' THEN true WHEN 'none' THEN NOT found_.is_there WHEN 'exists' THEN found_.is_there ELSE wanted = found_.next END;
    IF found_.archived OR NOT fits THEN
        IF wanted IS NOT NULL AND weir.is_repeated(key, wanted, types, data, metadata, ids, at) THEN
            RETURN wanted + cardinality(types);
        ELSIF fits THEN
            RAISE 'stream "%" of category "%" is archived', left(stream, 64), category
            USING ERRCODE = 'WE013', HINT = 'It can be read. It can be appended to again once it is no longer archived.';
        END IF;
        RAISE 'stream "%" of category "%", which %, is at version %, but % was expected', left(stream, 64), category,
            CASE WHEN found_.is_there THEN 'exists' ELSE 'does not exist' END, found_.next,
            CASE expected WHEN 'none' THEN 'no stream' WHEN 'exists' THEN 'a stream that exists' ELSE 'version ' || wanted END
        USING ERRCODE = 'WE011', HINT = 'Roll back, or back to a savepoint; read the stream, and decide again.';
    END IF;

    -- As eventlog.Version.Next: steps are random, so that a store that was rewound does not assign a version that some process remembers.
    after := found_.head + 1 + floor(random() * CASE found_.head WHEN 0 THEN 9007199254740992 ELSE 1048576 END)::bigint;
    INSERT INTO weir.held (key, version) VALUES (key, after);
    INSERT INTO weir.appended (key, version, head, id, type, data, metadata, "time")
    SELECT key, found_.next + x.n - 1, after, coalesce(nullif(x.id, ''), gen_random_uuid()::text), x.type, x.data, nullif(x.metadata, '{}'),
           date_trunc('milliseconds', coalesce(x."time", called))
    FROM unnest(types, data, metadata, ids, at) WITH ORDINALITY AS x(type, data, metadata, id, "time", n);
    me := pg_current_xact_id(); -- before the row's id, see weir.look
    INSERT INTO weir.inbox (xact, topic, key, headers, size)
    VALUES (me, about.id, convert_to(stream, 'UTF8'), jsonb_build_object('weir.stream', jsonb_build_object('key', key, 'head', after)), size);
    PERFORM weir.notify_mover();
    RETURN found_.next + cardinality(types);
END $$;
