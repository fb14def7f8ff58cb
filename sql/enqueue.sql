-- Messages of one queue, in order: an ORDER BY is not needed, for unnest gives its rows as they stand.
SELECT weir.post_message($1::text, m.key, m.value, m.headers, m.delay, m.at, m.priority, m.unique_key)
FROM unnest($2::bytea[], $3::bytea[], $4::jsonb[], $5::interval[], $6::timestamptz[], $7::int[], $8::text[])
    AS m(key, value, headers, delay, at, priority, unique_key)
