-- queue_runs reads the runs of a partition of a queue (use/claims/codec.go, which says what the text
-- has), in order: n messages up to the offset upto share the rest. texts are the state's. worker
-- and reason are NULL if there is none; nonce has the digits that a receipt has.
--
-- Older versions of weir wrote an array of objects.
CREATE OR REPLACE FUNCTION weir.queue_runs(floor bigint, runs json, texts json)
RETURNS TABLE (upto bigint, n bigint, fate text, attempt int, until bigint, nonce text, worker text, reason text)
LANGUAGE plpgsql STABLE
:pinned
AS $$
DECLARE
    names text[];
    x     text[]; -- letter, nonce, n, attempt, until, worker, reason
    c     record; -- the last run of those that are claimed
    w     record; -- and of those that wait
BEGIN
    upto := floor;
    IF json_typeof(runs) = 'array' THEN
        FOR n, fate, attempt, until, nonce, worker, reason IN
            SELECT r.n, r.fate, coalesce(r.attempt, 0), coalesce(r.until, 0), lpad(to_hex(coalesce(r.nonce, 0)), 8, '0'), r.worker, r.reason
            FROM json_to_recordset(runs) AS r(n bigint, fate text, attempt int, until bigint, nonce bigint, worker text, reason text)
        LOOP
            upto := upto + n;
            RETURN NEXT;
        END LOOP;
        RETURN;
    END IF;
    names := ARRAY(SELECT nullif(t, '') FROM json_array_elements_text(texts) AS t);
    SELECT 0 AS attempt, 0::bigint AS until, NULL::text AS nonce, NULL::text AS worker, NULL::text AS reason INTO c;
    w := c;
    FOR x IN
        SELECT regexp_matches(runs #>> '{}', '(?:([dswc])|C(.{6}))([0-9]*)(?:#([0-9]+))?([+-][0-9]+)?(?:@([0-9]+))?(?:!([0-9]+))?', 'g')
    LOOP
        n := coalesce(nullif(x[3], '')::bigint, 1);
        upto := upto + n;
        CASE x[1]
        WHEN 'd', 's' THEN
            fate := CASE x[1] WHEN 'd' THEN 'done' ELSE 'waiting' END;
            attempt := 0; until := 0; nonce := NULL; worker := NULL; reason := NULL;
        WHEN 'w' THEN
            w.attempt := coalesce(x[4]::int, w.attempt);
            w.until := w.until + coalesce(x[5]::bigint, 0);
            w.worker := CASE WHEN x[6] IS NULL THEN w.worker ELSE names[x[6]::int + 1] END;
            w.reason := CASE WHEN x[7] IS NULL THEN w.reason ELSE names[x[7]::int + 1] END;
            fate := 'waiting'; attempt := w.attempt; until := w.until; nonce := NULL; worker := w.worker; reason := w.reason;
        ELSE
            c.nonce := CASE WHEN x[2] IS NULL THEN c.nonce ELSE encode(decode(x[2] || '==', 'base64'), 'hex') END;
            c.attempt := coalesce(x[4]::int, c.attempt);
            c.until := c.until + coalesce(x[5]::bigint, 0);
            c.worker := CASE WHEN x[6] IS NULL THEN c.worker ELSE names[x[6]::int + 1] END;
            c.reason := CASE WHEN x[7] IS NULL THEN c.reason ELSE names[x[7]::int + 1] END;
            fate := 'claimed'; attempt := c.attempt; until := c.until; nonce := c.nonce; worker := c.worker; reason := c.reason;
        END CASE;
        RETURN NEXT;
    END LOOP;
END $$;
