-- read_stream returns the events of a stream with versions from low to below high (NULL: to its end), the newest first if backward: at most most (NULL: all) of those that are of one
-- of the types, and not younger than until (NULL: all). It reads a range of keys, and ends when it has found enough.
CREATE OR REPLACE FUNCTION weir.read_stream(head text, low bigint, high bigint, backward boolean, until timestamptz, types text[], most bigint)
RETURNS SETOF weir.stream_event
LANGUAGE plpgsql STABLE
:by_index
SET enable_sort = off
AS $$
DECLARE
    about    record;
    prefix   text := 'stream/event/' || substr(head, length('stream/head/') + 1) || '/';
    from_key text;
    to_key   text;
    part     text;
    rows_    refcursor;
    r        record;
    n        bigint; -- the version that comes next
    e        weir.stream_event;
    left_    bigint := coalesce(most, 9223372036854775807);
BEGIN
    SELECT * INTO about FROM weir.find_stream(head);
    low := greatest(low, about.first);
    high := least(high, about.next);
    IF NOT about.is_there OR low >= high OR left_ <= 0 THEN
        RETURN;
    END IF;
    n := CASE WHEN backward THEN high - 1 ELSE low END;
    from_key := prefix || lpad(low::text, 19, '0');
    to_key := prefix || lpad(greatest(low, least(high, about.carried))::text, 19, '0');
    FOREACH part IN ARRAY (CASE WHEN backward THEN '{waiting,carried}' ELSE '{carried,waiting}' END)::text[] LOOP
        IF part = 'carried' AND backward THEN
            OPEN rows_ FOR SELECT right(s.key, 19)::bigint AS version, s.value, NULL::weir.appended AS row
            FROM weir.state s WHERE s.key >= from_key AND s.key < to_key ORDER BY s.key DESC;
        ELSIF part = 'carried' THEN
            OPEN rows_ FOR SELECT right(s.key, 19)::bigint AS version, s.value, NULL::weir.appended AS row
            FROM weir.state s WHERE s.key >= from_key AND s.key < to_key ORDER BY s.key;
        ELSIF backward THEN
            OPEN rows_ FOR SELECT a.version, NULL::bytea AS value, a AS row
            FROM weir.appended a WHERE a.key = read_stream.head AND a.version >= greatest(low, about.carried) AND a.version < high ORDER BY a.version DESC;
        ELSE
            OPEN rows_ FOR SELECT a.version, NULL::bytea AS value, a AS row
            FROM weir.appended a WHERE a.key = read_stream.head AND a.version >= greatest(low, about.carried) AND a.version < high ORDER BY a.version;
        END IF;
        LOOP
            FETCH rows_ INTO r;
            EXIT WHEN NOT FOUND;
            EXIT WHEN r.version <> n; -- an event is missing
            IF part = 'carried' THEN
                e := weir.decode_event(r.value, head, n);
            ELSE
                e := ROW(n, (r.row).id, (r.row).type, (r.row)."time", (r.row).data, weir.text_of((r.row).data), weir.shown_metadata((r.row).metadata), NULL, NULL);
            END IF;
            n := n + CASE WHEN backward THEN -1 ELSE 1 END;
            CONTINUE WHEN e."time" > until OR e.type <> ALL (types);
            RETURN NEXT e;
            left_ := left_ - 1;
            IF left_ = 0 THEN
                CLOSE rows_;
                RETURN;
            END IF;
        END LOOP;
        CLOSE rows_;
    END LOOP;
    IF n <> (CASE WHEN backward THEN low - 1 ELSE high END) THEN
        RAISE 'the event with version % is missing in the store: %', n, head USING ERRCODE = 'data_corrupted', HINT = 'Run weir doctor, and restore a backup.';
    END IF;
END $$;
