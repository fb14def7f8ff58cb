-- The batch that holds an offset. SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset<?).
SELECT base_offset, newest, max_time, first_byte
FROM batch
WHERE partition_id = ?1 AND base_offset <= ?2
ORDER BY base_offset DESC
LIMIT 1
