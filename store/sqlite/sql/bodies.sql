-- The bodies of a run of batches.
-- SEARCH batch USING PRIMARY KEY (partition_id=? AND base_offset>? AND base_offset<?), SEARCH body USING INTEGER PRIMARY KEY.
SELECT body.bytes
FROM batch
CROSS JOIN body ON body.id = batch.body_id
WHERE batch.partition_id = ?1 AND batch.base_offset BETWEEN ?2 AND ?3
ORDER BY batch.base_offset
