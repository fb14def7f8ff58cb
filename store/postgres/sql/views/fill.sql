-- fill shows for every sealed segment how many bytes of batches it has, and how many of them are still needed.
CREATE VIEW weir.fill AS
WITH newest AS MATERIALIZED (
    SELECT * FROM weir.newest
), wanted AS (
    SELECT r.segment, r.next_byte - greatest(r.first_byte, n.first_byte) AS bytes
    FROM weir.run r JOIN newest n ON n.id = r.partition_id
    UNION ALL
    SELECT n.segment, n.next_byte - greatest(n.run_byte, n.first_byte)
    FROM newest n WHERE n.first_offset < n.next_offset
)
SELECT s.number, s.payload,
       coalesce(sum(w.bytes), 0)::bigint AS wanted,
       count(w.bytes) AS runs
FROM weir.segment s
LEFT JOIN wanted w ON w.segment = s.number
WHERE s.sealed_at IS NOT NULL
GROUP BY s.number;
