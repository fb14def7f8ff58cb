-- A part is what one package keeps in the schema: its own numbered files and its functions. The SQL door's files were among the log's until here.
ALTER TABLE weir.migration ADD COLUMN part text NOT NULL DEFAULT 'log';
ALTER TABLE weir.migration ADD COLUMN functions text; -- of the newest number: a hash of what was installed with it
ALTER TABLE weir.migration DROP CONSTRAINT migration_pkey, ADD PRIMARY KEY (part, number);

UPDATE weir.migration SET part = 'sqlfn' WHERE number IN (5, 6, 7, 8, 9, 12, 13);
