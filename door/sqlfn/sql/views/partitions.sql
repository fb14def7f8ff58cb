-- partitions has a row for each partition of each topic: its first offset, its next one, and how many bytes are between them.
CREATE VIEW weir.partitions AS
SELECT t.name AS topic,
       (u.nth - 1)::int AS partition,
       p.first_offset,
       p.next_offset,
       p.next_offset - p.first_offset AS records,
       p.next_byte - p.first_byte AS bytes, -- of batches, compressed or not
       p.id -- in weir.partition
FROM weir.topic t
CROSS JOIN LATERAL unnest(t.partitions) WITH ORDINALITY AS u(id, nth)
CROSS JOIN LATERAL (
    SELECT x.* FROM weir.partition x WHERE x.id = u.id ORDER BY x.turn DESC LIMIT 1
) AS p;
