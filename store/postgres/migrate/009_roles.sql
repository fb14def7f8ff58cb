-- Who may do what. Sessions that publish, consume or read need EXECUTE on a few functions, and no right to any table. PUBLIC has nothing.

-- rights lists what each kind of role is given. A later migration that adds something for sessions adds its rows.
CREATE TABLE weir.rights (
    kind text NOT NULL, -- producer, consumer, reader
    what text NOT NULL, -- as GRANT takes it
    PRIMARY KEY (kind, what)
);

INSERT INTO weir.rights (kind, what) VALUES
    ('producer', 'USAGE ON SCHEMA weir'),
    ('producer', 'EXECUTE ON FUNCTION weir.post(text, bytea, bytea, jsonb, int, boolean)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, text, text, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, text, jsonb, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, text, bytea, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, bytea, bytea, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish_all(text, anycompatiblearray, anyarray, jsonb)'),
    ('producer', 'EXECUTE ON FUNCTION weir.tombstone(text, text, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.tombstone(text, bytea, jsonb, int)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.commit_offset(text, text, int, bigint, bigint, text, int)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.position(text, text, int)');

-- A consumer reads as well. Functions that stand in a view are called as whoever reads it.
INSERT INTO weir.rights (kind, what)
SELECT kind, what
FROM unnest(ARRAY['consumer', 'reader']) AS kind, unnest(ARRAY[
    'USAGE ON SCHEMA weir',
    'SELECT ON weir.topics, weir.partitions, weir.groups',
    'EXECUTE ON FUNCTION weir.unescaped(text), weir.text_of(bytea), weir.assigned(jsonb)',
    'EXECUTE ON FUNCTION weir.events(text, bigint, int, bigint), weir.last_events(text, bigint, int)',
    'EXECUTE ON FUNCTION weir.topic_spans(text, int, bigint, bigint, boolean), weir.span_events(int, bigint, bigint, bigint)',
    'EXECUTE ON FUNCTION weir.decode(bigint, bigint, bigint), weir.stretch(bigint, bigint, bigint)'
]) AS what;

-- grant_to gives a role what a kind of role is given: SELECT weir.grant_to('app', 'producer'). It is for the owner of the schema.
CREATE FUNCTION weir.grant_to(role regrole, kind text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    what text;
BEGIN
    IF role IS NULL OR NOT EXISTS (SELECT FROM weir.rights r WHERE r.kind = grant_to.kind) THEN
        RAISE 'no rights are known for role "%" as "%"', role, kind
        USING ERRCODE = 'invalid_parameter_value', HINT = 'The kind is producer, consumer or reader.';
    END IF;
    FOR what IN SELECT r.what FROM weir.rights r WHERE r.kind = grant_to.kind LOOP
        IF what = 'USAGE ON SCHEMA weir' AND NOT has_schema_privilege('weir', 'USAGE WITH GRANT OPTION') THEN
            -- The schema is another's, who lets us create in it.
            IF NOT has_schema_privilege(role, 'weir', 'USAGE') THEN
                RAISE NOTICE 'role % cannot reach schema weir, and % may not change that', role, current_user
                USING HINT = format('As the owner of the schema: GRANT USAGE ON SCHEMA weir TO %s', role);
            END IF;
        ELSE
            EXECUTE format('GRANT %s TO %s', what, role); -- a regrole reads as a quoted name
        END IF;
    END LOOP;
END $$;

-- set_rights runs after every migration: it takes from PUBLIC what functions give it by default, makes the three roles where it may, and gives
-- them what is theirs. Roles belong to the whole server: they may be there already.
CREATE FUNCTION weir.set_rights() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    kind text;
BEGIN
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA weir FROM PUBLIC;
    REVOKE ALL ON ALL TABLES IN SCHEMA weir FROM PUBLIC;
    FOREACH kind IN ARRAY ARRAY['producer', 'consumer', 'reader'] LOOP
        IF to_regrole('weir_' || kind) IS NULL AND (SELECT r.rolsuper OR r.rolcreaterole FROM pg_roles r WHERE r.rolname = current_user) THEN
            BEGIN
                EXECUTE format('CREATE ROLE weir_%s NOLOGIN', kind);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- another database's migration was faster
            END;
        END IF;
        IF to_regrole('weir_' || kind) IS NOT NULL THEN
            PERFORM weir.grant_to(to_regrole('weir_' || kind), kind);
        ELSE
            RAISE NOTICE 'role weir_% is not there, and % may not create it', kind, current_user
            USING HINT = format('CREATE ROLE weir_%s NOLOGIN; SELECT weir.grant_to(''weir_%s'', ''%s'')', kind, kind, kind);
        END IF;
    END LOOP;
END $$;
