-- set_rights runs after every installation, and at a start if rights are missing: it creates the four roles if it may, and grants them their rights. Roles belong to the whole server, so they may exist already.
CREATE OR REPLACE FUNCTION weir.set_rights() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    kind     text;
    consumer regrole;
BEGIN
    -- Roles that may call commit_offset may also call commit_offset_by_id.
    FOR consumer IN
        SELECT DISTINCT a.grantee::regrole
        FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
        WHERE p.oid = 'weir.commit_offset(text, text, int, bigint, bigint, text, int)'::regprocedure AND a.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION weir.commit_offset_by_id(text, uuid, int, bigint, bigint, text, int) TO %s', consumer);
    END LOOP;
    FOREACH kind IN ARRAY ARRAY['producer', 'consumer', 'reader', 'creator'] LOOP
        IF to_regrole('weir_' || kind) IS NULL AND (SELECT r.rolsuper OR r.rolcreaterole FROM pg_roles r WHERE r.rolname = current_user) THEN
            BEGIN
                EXECUTE format('CREATE ROLE weir_%s NOLOGIN', kind);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- the migration of another database has just created it
            END;
        END IF;
        IF to_regrole('weir_' || kind) IS NOT NULL THEN
            PERFORM weir.grant_to(to_regrole('weir_' || kind), kind);
        ELSE
            RAISE WARNING 'role weir_% does not exist, and % may not create it', kind, current_user
            USING HINT = format('CREATE ROLE weir_%s NOLOGIN; SELECT weir.grant_to(''weir_%s'', ''%s'')', kind, kind, kind);
        END IF;
    END LOOP;
END $$;
