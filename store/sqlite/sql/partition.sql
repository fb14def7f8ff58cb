-- One partition. SEARCH partition USING INTEGER PRIMARY KEY.
SELECT first_offset, next_offset, first_byte, next_byte, newest, replaced, removed
FROM partition
WHERE id = ?1
