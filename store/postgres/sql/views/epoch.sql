-- epoch has no data. Each transaction that writes to the log locks it in ROW EXCLUSIVE mode, and who begins
-- a leader epoch waits for them with SHARE ROW EXCLUSIVE (functions/wait_for_commits.sql). It is a view because
-- every lock of a table that keeps writers out also waits for VACUUM, ANALYZE, REINDEX CONCURRENTLY and
-- CREATE INDEX CONCURRENTLY (https://www.postgresql.org/docs/current/explicit-locking.html); a view has none
-- of these. It is no advisory lock because any session that may connect can take those.
CREATE VIEW weir.epoch AS SELECT;
