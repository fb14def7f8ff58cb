-- Messages of one queue with the same headers, which nothing delays, in one call.
SELECT weir.enqueue_all($1::text, $2::bytea[], $3::bytea[], $4::jsonb)
