SELECT partition_id, below
FROM trash
LIMIT 1
