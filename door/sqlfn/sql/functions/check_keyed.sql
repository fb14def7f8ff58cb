-- check_keyed fails if a topic is compacted. Call it when an event has no key; what says where the key is missing.
CREATE OR REPLACE FUNCTION weir.check_keyed(about weir.topic, what text) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF about.settings ->> 'cleanup.policy' LIKE '%compact%' THEN
        RAISE '%, and topic "%" is compacted', what, about.name
        USING ERRCODE = 'null_value_not_allowed', HINT = 'A compacted topic (cleanup.policy) keeps the newest event of each key: give each event a key.';
    END IF;
END $$;
