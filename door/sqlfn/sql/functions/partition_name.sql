-- partition_name returns the name of a partition for error texts, with its topic and number.
CREATE OR REPLACE FUNCTION weir.partition_name(id bigint) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(min(format('partition %s of topic "%s"', array_position(t.partitions, partition_name.id) - 1, t.name)), 'partition ' || partition_name.id)
    FROM weir.topic AS t
    WHERE partition_name.id = ANY (t.partitions);
END;
