-- Messages of one queue, in their order. No ORDER BY is needed: unnest returns rows in the order of the arrays. An empty element is NULL (list in tx.go).
SELECT weir.post_message($1::text, nullif(m.key, '')::bytea, m.value, m.headers, nullif(m.delay, '')::interval, nullif(m.at, '')::timestamptz, m.priority, nullif(m.unique_key, ''))
FROM unnest($2::text[], $3::bytea[], $4::jsonb[], $5::text[], $6::text[], $7::int[], $8::text[])
    AS m(key, value, headers, delay, at, priority, unique_key)
