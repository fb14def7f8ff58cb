CREATE OR REPLACE FUNCTION weir.check_partition(topic weir.topic, partition int) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    n int := cardinality(topic.partitions);
BEGIN
    IF partition IS NULL THEN
        RAISE 'partition is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Partitions are numbered from 0.';
    ELSIF partition < 0 OR partition >= n THEN
        RAISE 'topic "%" has no partition %', topic.name, partition
        USING ERRCODE = 'WE002', HINT = format('The topic has the partitions 0 to %s.', n - 1);
    END IF;
END $$;
