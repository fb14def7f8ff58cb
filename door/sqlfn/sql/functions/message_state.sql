-- message_state returns what became of a message with an id of weir.enqueue_id: its state, how many attempts it had, the error of the last one, and message, its id in the queue. A
-- message that no weir has moved into the queue yet is in state sent; a message of a transaction that was rolled back is unknown.
--
-- It is Queue.Find (use/queue/inspect.go) in SQL, but for copies of messages that are done. A message that left its first partition is searched for in the wheel, the queue's
-- partitions and its dead letters. If they have more than a million records, and it was not found among these, it is unclear: done, or where nobody looked.
CREATE OR REPLACE FUNCTION weir.message_state(
    queue text, id bigint, OUT state text, OUT attempts int, OUT until timestamptz, OUT worker text, OUT error text, OUT message text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER
:by_index
AS $$
DECLARE
    definition json   := weir.find_queue(queue);
    mine       text   := queue || '/' || (definition ->> 'id'); -- as in the header weir.queue.to
    topics     uuid[] := (definition ->> 'topic_id')::uuid || ARRAY(SELECT l.level::uuid FROM json_array_elements_text(definition -> 'levels') AS l(level));
    place      weir.enqueued;
    p          record;
    s          record;
    run        record;
    low        bigint;
    at         bigint;
    headers    jsonb;
    packed     boolean;
    unread     boolean := false;
    left_      bigint := 1000000;
BEGIN
    IF id IS NULL THEN
        RAISE 'id is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give an id that weir.enqueue_id returned.';
    END IF;
    IF EXISTS (SELECT FROM weir.inbox i WHERE i.id = message_state.id AND weir.is_for(i.topic, topics) AND i.grp IS NULL AND i.base IS NOT NULL) THEN
        state := 'sent';
        attempts := 0;
        RETURN;
    END IF;
    state := 'unknown';
    SELECT e.* INTO place FROM weir.enqueued e WHERE e.first <= message_state.id ORDER BY e.first DESC LIMIT 1;
    IF place.last IS NULL OR place.last < id THEN
        RETURN;
    END IF;
    place."offset" := place."offset" + (id - place.first);
    message := place.partition || '-' || place."offset";
    -- The partitions where it may be, the first one first.
    FOR p IN
        SELECT x.id, x.first_offset, x.next_offset, w.kind, x.id = place.partition AS is_first,
               CASE w.kind
                   WHEN 'queue' THEN ARRAY[format('queue/state/%s/%s', definition ->> 'id', x.id), format('queue/state/%s/all', definition ->> 'id')] -- a queue with limits has one state
                   WHEN 'wheel' THEN ARRAY[format('queue/later/%s', x.id)]
                   ELSE ARRAY[format('queue/dead/%s/%s', definition ->> 'id', x.id)] END AS keys
        FROM (
            SELECT 'queue' AS kind, t.partitions FROM weir.topic t WHERE t.id = ANY (topics)
            UNION ALL
            SELECT 'wheel', t.partitions FROM weir.topic t WHERE t.name = '__weir_later'
            UNION ALL
            SELECT 'letters', t.partitions FROM weir.topic t WHERE t.name = queue || '.dlt'
        ) AS w
        CROSS JOIN LATERAL unnest(w.partitions) AS u(id)
        CROSS JOIN LATERAL weir.newest_partition(u.id) AS x
        WHERE x.first_offset < x.next_offset OR x.id = place.partition
        ORDER BY x.id = place.partition DESC, w.kind, x.id
    LOOP
        IF state = 'unknown' THEN
            EXIT WHEN NOT p.is_first; -- it is not a message of this queue
            state := 'done';
        END IF;
        SELECT f.* INTO s FROM weir.part_of_state(p.keys, p.id, p.first_offset, p.next_offset) AS f;
        low := greatest(s.floor, p.first_offset);
        FOR again IN 0..1 LOOP
            at := NULL;
            headers := NULL;
            IF again = 1 THEN -- the message may have come back into this partition
                left_ := left_ - greatest(0, p.next_offset - low);
                unread := unread OR left_ < 0;
                EXIT WHEN left_ < 0;
                SELECT f."offset", f.headers, f.packed INTO at, headers, packed FROM weir.find_moved(p.id, low, message, mine, p.kind = 'wheel') AS f;
                unread := unread OR packed;
            ELSIF p.is_first THEN
                at := place."offset";
                IF p.kind = 'wheel' AND at >= low THEN
                    SELECT e.headers INTO headers FROM weir.span_events(0, p.id, at, at + 1) AS e;
                    IF headers ->> 'weir.queue.to' <> mine THEN
                        state := 'unknown';
                        RETURN;
                    END IF;
                END IF;
            END IF;
            CONTINUE WHEN at IS NULL OR at < low;
            IF at >= s.next OR s.next IS NULL THEN
                SELECT 'ready' AS fate, 0 AS attempt, 0::bigint AS until, NULL::text AS worker, NULL::text AS reason INTO run;
            ELSE
                SELECT r.* INTO run FROM weir.queue_runs(s.floor, s.runs, s.texts) AS r WHERE r.upto > at LIMIT 1;
            END IF;
            CONTINUE WHEN run.fate = 'done';
            attempts := coalesce((headers ->> 'weir.queue.tried')::int, 0) + run.attempt;
            IF p.kind = 'queue' THEN
                until := to_timestamp(nullif(run.until, 0) / 1000.0);
                state := CASE WHEN until > clock_timestamp() THEN run.fate ELSE 'ready' END;
                until := CASE WHEN until > clock_timestamp() THEN until END;
                worker := run.worker;
                error := run.reason;
            ELSIF p.kind = 'wheel' THEN
                state := 'delayed';
                until := to_timestamp((headers ->> 'weir.queue.due')::bigint / 1000.0);
            ELSE
                state := 'dead';
                attempts := (headers ->> 'weir.queue.attempts')::int;
                worker := weir.header_text(headers ->> 'weir.queue.worker');
                error := weir.header_text(headers ->> 'weir.queue.error');
            END IF;
            RETURN;
        END LOOP;
    END LOOP;
    IF unread AND state = 'done' THEN
        state := 'unclear';
    END IF;
END $$;
