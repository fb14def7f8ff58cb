-- Roles that may read streams may also list them, and projections (views/streams.sql, views/projections.sql).
INSERT INTO weir.rights (kind, what)
SELECT kind, 'SELECT ON weir.streams, weir.projections' FROM unnest(ARRAY['consumer', 'reader']) AS kind;
