-- A part is what one package has in the schema: its numbered files and its functions. Before this file, the files of the SQL door belonged to the log.
ALTER TABLE weir.migration ADD COLUMN part text NOT NULL DEFAULT 'log';
ALTER TABLE weir.migration ADD COLUMN functions text; -- in the row with the highest number: a hash of the functions and views that were installed with it
ALTER TABLE weir.migration DROP CONSTRAINT migration_pkey, ADD PRIMARY KEY (part, number);

UPDATE weir.migration SET part = 'sqlfn' WHERE number IN (5, 6, 7, 8, 9, 12, 13);
