-- Compaction replaces batches by others, most of them smaller (replace.go). first_byte of the batches that follow stays as it is.
ALTER TABLE partition ADD COLUMN replaced INTEGER NOT NULL DEFAULT 0; -- the highest offset below which batches were replaced
ALTER TABLE partition ADD COLUMN removed  INTEGER NOT NULL DEFAULT 0; -- by how much next_byte - first_byte exceeds the bytes of the batches
