-- What functions make. This runs after the functions are installed, each time.

-- The writers of the segments that are there become those of this version.
SELECT weir.add_writer(number) FROM weir.segment;

SELECT weir.add_segment(false) WHERE NOT EXISTS (SELECT FROM weir.segment);
