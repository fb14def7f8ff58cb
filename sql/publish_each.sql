-- Events of any kind, in their order. No ORDER BY is needed: unnest returns rows in the order of the arrays.
SELECT weir.post(e.topic, e.key, e.value, e.headers, e.partition, e.value IS NULL)
FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::jsonb[], $5::int[]) AS e(topic, key, value, headers, partition)
