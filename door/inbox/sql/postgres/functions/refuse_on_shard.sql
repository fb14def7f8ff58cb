-- refuse_on_shard is the trigger of tables that door/sqlfn left in a database that became a shard: nothing moves what would be put there.
CREATE OR REPLACE FUNCTION weir.refuse_on_shard() RETURNS trigger
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    RAISE 'this database is one shard of several, and does not do this in SQL' USING ERRCODE = 'feature_not_supported',
        HINT = 'weir.publish, weir.publish_all and weir.tombstone work on a shard. For all else use Go, HTTP or Kafka: docs/shards.md.';
END $$;
