-- Messages of one queue, in their order. No ORDER BY is needed: unnest returns rows in the order of the arrays.
SELECT weir.post_message($1::text, m.key, m.value, m.headers, m.delay, m.at, m.priority, m.unique_key)
FROM unnest($2::bytea[], $3::bytea[], $4::jsonb[], $5::interval[], $6::timestamptz[], $7::int[], $8::text[])
    AS m(key, value, headers, delay, at, priority, unique_key)
