-- The batches from an offset on, newest first. SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset>?).
SELECT base_offset, size
FROM batch
WHERE partition_id = ?1 AND base_offset >= ?2
ORDER BY base_offset DESC
