-- Events of one topic with the same headers, in one call.
SELECT weir.publish_all($1::text, $2::bytea[], $3::bytea[], $4::jsonb)
