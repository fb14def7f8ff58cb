-- missing_rights returns those of weir's four roles that do not exist, or lack rights: a backup was restored
-- into a server that has not the roles, or a role was created after weir had started.
CREATE OR REPLACE FUNCTION weir.missing_rights() RETURNS TABLE (role text, lack text)
LANGUAGE plpgsql STABLE
:pinned
AS $$
BEGIN
    RETURN QUERY
    SELECT k.name, CASE WHEN to_regrole(k.name) IS NULL THEN 'does not exist' ELSE 'lacks rights in schema weir' END
    FROM (VALUES ('weir_producer', 'weir.post(text, bytea, bytea, jsonb, int, boolean)'),
                 ('weir_consumer', 'weir.position(text, text, int)'),
                 ('weir_reader',   'weir.last_events(text, bigint, int)'),
                 ('weir_creator',  'weir.create_topic(text, int, jsonb)')) AS k(name, function)
    WHERE to_regrole(k.name) IS NULL
       OR NOT has_schema_privilege(to_regrole(k.name), 'weir', 'USAGE')
       OR NOT has_function_privilege(to_regrole(k.name), k.function, 'EXECUTE');
END $$;
