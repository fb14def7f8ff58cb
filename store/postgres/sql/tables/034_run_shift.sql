-- Compaction replaces the batches of a span of offsets (functions/replace.sql): the new ones go to the segment of survivors, as a run. They have fewer
-- bytes, so all earlier runs move closer: the first byte of a batch is its byte plus the shift of its run.
ALTER TABLE weir.run ADD COLUMN shift bigint NOT NULL DEFAULT 0;
