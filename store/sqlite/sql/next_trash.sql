-- SCAN trash: of its few rows, the first.
SELECT partition_id, below
FROM trash
LIMIT 1
