-- A batch, with the body that was added right before it.
INSERT INTO batch (partition_id, base_offset, records, max_time, newest, first_byte, size, body_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, last_insert_rowid())
