-- The bodies of the batches of a partition that begin in a span of offsets.
DELETE FROM body
WHERE id IN (
    SELECT body_id
    FROM batch
    WHERE partition_id = ?1 AND base_offset >= ?2 AND base_offset < ?3
)
