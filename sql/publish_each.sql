-- Events of any kind, in their order. No ORDER BY is needed: unnest returns rows in the order of the arrays. An empty element is NULL (list in tx.go).
SELECT weir.post(e.topic, nullif(e.key, '')::bytea, nullif(e.value, '')::bytea, e.headers, nullif(e.partition, '')::int, e.value = '')
FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::text[]) AS e(topic, key, value, headers, partition)
