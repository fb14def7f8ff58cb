-- no_topic raises the error for a name that no topic has.
CREATE OR REPLACE FUNCTION weir.no_topic(topic text) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF topic IS NULL THEN
        RAISE 'topic is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the name of the topic.';
    ELSIF topic !~ '^[a-zA-Z0-9._-]{1,249}$' OR topic IN ('.', '..') THEN
        RAISE '"%" is not a valid name of a topic', left(topic, 64)
        USING ERRCODE = 'invalid_parameter_value',
              HINT = 'A name has 1 to 249 of the characters a-z, A-Z, 0-9, ".", "_" and "-", and is not "." or "..".';
    END IF;
    RAISE 'topic "%" does not exist', topic
    USING ERRCODE = 'WE001', HINT = format('Create it first: weir topic create %s', topic);
END $$;
