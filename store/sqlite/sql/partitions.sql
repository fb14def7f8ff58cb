-- The bounds of all partitions. SCAN partition: narrow rows, a few hundred to a page.
SELECT id, first_offset, next_offset, next_byte - first_byte
FROM partition
