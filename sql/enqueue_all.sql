-- Messages of one queue with the same headers, which nothing delays, in one call. An empty key is NULL (list in tx.go).
SELECT weir.enqueue_all($1::text, ARRAY(SELECT nullif(k, '')::bytea FROM unnest($2::text[]) AS k), $3::bytea[], $4::jsonb)
