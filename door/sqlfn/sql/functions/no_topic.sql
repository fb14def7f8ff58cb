-- no_topic explains why there is no topic of that name.
CREATE OR REPLACE FUNCTION weir.no_topic(topic text) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF topic IS NULL THEN
        RAISE 'topic is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Name the topic.';
    ELSIF topic !~ '^[a-zA-Z0-9._-]{1,249}$' OR topic IN ('.', '..') THEN
        RAISE 'topic "%" cannot be a topic''s name', left(topic, 64)
        USING ERRCODE = 'invalid_parameter_value',
              HINT = 'A name has 1 to 249 of the characters a-z, A-Z, 0-9, ".", "_" and "-", and is not "." or "..".';
    END IF;
    RAISE 'there is no topic "%"', topic
    USING ERRCODE = 'WE001', HINT = format('Create it first: weir topic create %s', topic);
END $$;
