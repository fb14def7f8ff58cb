-- The first of a few rows. SCAN trash.
SELECT partition_id, below
FROM trash
LIMIT 1
