-- The batches from the one that holds an offset up to another offset, without their bodies.
-- SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset>? AND base_offset<?).
SELECT base_offset, records, max_time, size
FROM batch
WHERE partition_id = ?1
  AND base_offset >= (
      SELECT max(base_offset)
      FROM batch
      WHERE partition_id = ?1 AND base_offset <= ?2
  )
  AND base_offset < ?3
ORDER BY base_offset
