-- This runs each time after the functions are installed: it calls them to create what the log needs.

-- Existing segments get the write function of this version.
SELECT weir.add_writer(number) FROM weir.segment;

SELECT weir.add_segment(false) WHERE NOT EXISTS (SELECT FROM weir.segment);

-- No process opens a segment meanwhile: insert_piece is a function that whoever opens one replaces.
SELECT FROM weir.guard WHERE number = 65 FOR NO KEY UPDATE;
SELECT weir.add_piece_writer(number) FROM weir.segment WHERE sealed_at IS NULL AND NOT survivors;
