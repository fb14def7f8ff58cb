-- The bounds of all partitions. SCAN partition: rows are short, a few hundred per page.
SELECT id, first_offset, next_offset, next_byte - first_byte - removed
FROM partition
