-- This runs each time after the functions are installed: it calls them to create what the log needs.

-- Existing segments get the write function of this version.
SELECT weir.add_writer(number) FROM weir.segment;

SELECT weir.add_segment(false) WHERE NOT EXISTS (SELECT FROM weir.segment);
