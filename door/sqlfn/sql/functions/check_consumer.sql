-- check_consumer checks the arguments that position and commit_offset share.
CREATE OR REPLACE FUNCTION weir.check_consumer(grp text, topic weir.topic, partition int) RETURNS void
LANGUAGE plpgsql STABLE
:pinned
AS $$
BEGIN
    IF grp IS NULL THEN
        RAISE 'grp is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the name of the consumer group.';
    ELSIF octet_length(grp) NOT BETWEEN 1 AND 512 THEN
        RAISE 'grp has % bytes', octet_length(grp)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'The name of a group must have 1 to 512 bytes.';
    END IF;
    PERFORM weir.check_partition(topic, partition);
END $$;
