-- Partitions whose newest batch does not end at next_offset: that is possible only if the file is damaged.
-- SCAN partition, SEARCH batch USING PRIMARY KEY (partition_id=?).
SELECT id
FROM partition
WHERE next_offset > first_offset
  AND next_offset IS NOT (
      SELECT base_offset + records
      FROM batch
      WHERE partition_id = partition.id
      ORDER BY base_offset DESC
      LIMIT 1
  )
LIMIT 10
