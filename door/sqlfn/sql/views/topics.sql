-- topics has a row for each topic: how many partitions, records and bytes it has, and the settings that were set for it.
CREATE VIEW weir.topics AS
SELECT t.name,
       t.id,
       cardinality(t.partitions) AS partitions,
       h.records,
       h.bytes,
       t.settings -- only those that were set; the others have Kafka's defaults
FROM weir.topic t
CROSS JOIN LATERAL (
    SELECT sum(p.next_offset - p.first_offset)::bigint AS records, sum(p.next_byte - p.first_byte)::bigint AS bytes
    FROM unnest(t.partitions) AS u(id)
    CROSS JOIN LATERAL (
        SELECT x.* FROM weir.partition x WHERE x.id = u.id ORDER BY x.turn DESC LIMIT 1
    ) AS p
) AS h;
