-- headers_of_new checks the headers of a new message, and returns them as they are stored in the inbox: NULL for none. Headers that a queue added
-- to another message are left out; as in Go (use/queue/headers.go).
CREATE OR REPLACE FUNCTION weir.headers_of_new(headers jsonb) RETURNS jsonb
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    headers := weir.checked_headers(headers);
    IF headers::text LIKE '%"weir.queue.%' THEN
        headers := (SELECT jsonb_object_agg(h.name, h.content) FROM jsonb_each(headers) AS h (name, content)
                    WHERE h.name NOT LIKE 'weir.queue.%' OR h.name IN ('weir.queue.schedule', 'weir.queue.tick'));
    END IF;
    RETURN headers;
END $$;
