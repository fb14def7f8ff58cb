SELECT weir.commit_offset($1::text, $2::text, $3::int, $4::bigint, from_offset => $5::bigint, member => $6::text)
