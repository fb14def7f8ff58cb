-- streams has a row for each event-sourced stream of each category, deleted streams included. It counts events that were appended with SQL and that no mover has carried yet.
-- It reads the keys of the categories that are asked for.
CREATE VIEW weir.streams AS
SELECT t.name AS category,
       weir.unescaped(substr(k.key, length(r.prefix) + 1)) AS stream,
       coalesce(w.version + 1, (h.about ->> 'next')::bigint) AS version, -- that of the next event
       coalesce((h.about ->> 'first')::bigint, 0) AS first_version, -- that of the first event that can be read
       w.version IS NULL AND coalesce((h.about ->> 'deleted')::boolean, false) AS deleted,
       coalesce((h.about ->> 'archived')::boolean, false) AS archived
FROM weir.topic t
CROSS JOIN LATERAL (SELECT 'stream/head/' || replace(t.id::text, '-', '') || '/' AS prefix) AS r
CROSS JOIN LATERAL (
    SELECT s.key FROM weir.state s WHERE s.key >= r.prefix AND s.key < left(r.prefix, -1) || '0'
    UNION
    SELECT a.key FROM weir.appended a WHERE a.key >= r.prefix AND a.key < left(r.prefix, -1) || '0'
) AS k
LEFT JOIN LATERAL (
    SELECT convert_from(s.value, 'UTF8')::json AS about FROM weir.state s WHERE s.key = k.key ORDER BY s.turn DESC LIMIT 1
) AS h ON true
LEFT JOIN LATERAL (
    SELECT a.version FROM weir.appended a
    WHERE a.key = k.key AND a.version >= coalesce((h.about ->> 'next')::bigint, 0) -- not carried yet
    ORDER BY a.version DESC LIMIT 1
) AS w ON true;
