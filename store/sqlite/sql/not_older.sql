-- The first batch at or above an offset whose newest record is not older than a time.
-- SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset>?).
SELECT base_offset
FROM batch
WHERE partition_id = ?1 AND base_offset >= ?2 AND max_time >= ?3
ORDER BY base_offset
LIMIT 1
