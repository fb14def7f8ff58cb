-- grant_to grants a role the rights of a kind of role: SELECT weir.grant_to('app', 'producer'). It is for the owner of the schema.
CREATE OR REPLACE FUNCTION weir.grant_to(role regrole, kind text) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    what text;
BEGIN
    IF role IS NULL OR NOT EXISTS (SELECT FROM weir.rights r WHERE r.kind = grant_to.kind) THEN
        RAISE 'cannot grant rights to role "%": "%" is not a kind of role', role, kind
        USING ERRCODE = 'invalid_parameter_value', HINT = 'The kind must be producer, consumer, reader or creator.';
    END IF;
    FOR what IN SELECT r.what FROM weir.rights r WHERE r.kind = grant_to.kind LOOP
        IF what = 'USAGE ON SCHEMA weir' AND NOT has_schema_privilege('weir', 'USAGE WITH GRANT OPTION') THEN
            -- The schema has another owner, who lets us create objects in it.
            IF NOT has_schema_privilege(role, 'weir', 'USAGE') THEN
                RAISE NOTICE 'role % has no right to use schema weir, and % may not grant it', role, current_user
                USING HINT = format('As the owner of the schema: GRANT USAGE ON SCHEMA weir TO %s', role);
            END IF;
        ELSE
            EXECUTE format('GRANT %s TO %s', what, role); -- a regrole is formatted as a quoted name
        END IF;
    END LOOP;
END $$;
