-- The batches of a partition that begin below an offset, oldest first.
-- SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset<?).
SELECT base_offset, records, size
FROM batch
WHERE partition_id = ?1 AND base_offset < ?2
ORDER BY base_offset
