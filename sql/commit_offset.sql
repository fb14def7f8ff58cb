SELECT weir.commit_offset_by_id($1::text, $2::uuid, $3::int, $4::bigint, from_offset => $5::bigint, member => $6::text)
