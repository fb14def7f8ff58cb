-- The first batch that begins after an offset. SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset>?).
SELECT base_offset
FROM batch
WHERE partition_id = ?1 AND base_offset > ?2
ORDER BY base_offset
LIMIT 1
