-- set_inbox_rights runs after every installation, and whenever a process opens the inbox: it creates the role weir_producer if it may, grants it its rights, and adds the triggers
-- that refuse what door/sqlfn did while the database was a store by itself.
CREATE OR REPLACE FUNCTION weir.set_inbox_rights() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    left_over text;
    called    text;
BEGIN
    LOCK TABLE weir.weir_inbox_barrier IN SHARE ROW EXCLUSIVE MODE; -- one process at a time
    FOREACH left_over IN ARRAY ARRAY['inbox', 'consumed', 'acked', 'nacked', 'claim_request', 'appended'] LOOP
        IF to_regclass('weir.' || left_over) IS NOT NULL AND
            NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = to_regclass('weir.' || left_over) AND t.tgname = 'refuse_on_shard') THEN
            EXECUTE format('CREATE TRIGGER refuse_on_shard BEFORE INSERT OR UPDATE ON weir.%I FOR EACH STATEMENT EXECUTE FUNCTION weir.refuse_on_shard()', left_over);
        END IF;
    END LOOP;
    IF to_regrole('weir_producer') IS NULL AND (SELECT r.rolsuper OR r.rolcreaterole FROM pg_roles r WHERE r.rolname = current_user) THEN
        BEGIN
            CREATE ROLE weir_producer NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- the migration of another database has just created it
        END;
    END IF;
    FOR called IN
        SELECT p.oid::regprocedure::text FROM pg_proc p
        WHERE p.pronamespace = 'weir'::regnamespace AND p.proname IN ('publish', 'publish_all', 'tombstone', 'post')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', called);
        IF to_regrole('weir_producer') IS NOT NULL THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO weir_producer', called);
        END IF;
    END LOOP;
    IF to_regrole('weir_producer') IS NOT NULL THEN
        IF has_schema_privilege('weir', 'USAGE WITH GRANT OPTION') THEN
            GRANT USAGE ON SCHEMA weir TO weir_producer;
        END IF;
    ELSE
        RAISE NOTICE 'role weir_producer does not exist, and % may not create it', current_user
        USING HINT = 'CREATE ROLE weir_producer NOLOGIN; then start weir again';
    END IF;
END $$;
