-- Creates or changes a partition.
INSERT INTO partition (id, first_offset, next_offset, first_byte, next_byte, newest, replaced, removed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (id) DO UPDATE
SET first_offset = ?2, next_offset = ?3, first_byte = ?4, next_byte = ?5, newest = ?6, replaced = ?7, removed = ?8
