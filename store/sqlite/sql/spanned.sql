-- What the batches that begin in a span of offsets have together. SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset>? AND base_offset<?).
SELECT count(*), coalesce(min(base_offset), 0), coalesce(max(base_offset + records), 0), coalesce(sum(size), 0), coalesce(min(first_byte), 0), coalesce(max(newest), 0)
FROM batch
WHERE partition_id = ?1 AND base_offset >= ?2 AND base_offset < ?3
