-- Adds a batch; its body is the row that was inserted immediately before.
INSERT INTO batch (partition_id, base_offset, records, max_time, newest, first_byte, size, body_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, last_insert_rowid())
