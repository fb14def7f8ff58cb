-- note_pool notes that a weir uses the pool of connections that this session belongs to: see tables/045_pool.sql. It deletes what was noted an hour ago: poolers come with
-- ever new addresses. So there are no more rows than pools within an hour.
CREATE OR REPLACE FUNCTION weir.note_pool() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    DELETE FROM weir.pool p WHERE p.seen_at < clock_timestamp() - interval '1 hour';
    INSERT INTO weir.pool AS p VALUES (session_user, coalesce(host(inet_client_addr()), ''), clock_timestamp())
    ON CONFLICT ON CONSTRAINT pool_pkey DO UPDATE SET seen_at = excluded.seen_at;
END $$;
