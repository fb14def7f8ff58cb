-- Events of one topic with the same headers, as one set.
SELECT weir.publish_all($1::text, $2::bytea[], $3::bytea[], $4::jsonb)
