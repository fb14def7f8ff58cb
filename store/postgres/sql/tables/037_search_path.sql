-- The first schema of the default search path is the one that has the name of the role. So what a program
-- that connects as role weir creates, without naming a schema, would be among weir's own tables. A new database
-- gets another search path for that role. In one that has tables already, programs may rely on the old one:
-- weir doctor warns there.
DO $$ BEGIN
    IF current_user = 'weir' AND current_schema() = 'weir' AND NOT EXISTS (SELECT FROM weir.migration)
       AND (SELECT s.source = 'default' FROM pg_settings s WHERE s.name = 'search_path') THEN
        EXECUTE format('ALTER ROLE weir IN DATABASE %I SET search_path = public', current_database());
        RAISE NOTICE 'role weir now has the search_path public in database %', current_database()
        USING HINT = 'Otherwise a table that is created without a schema would be in schema weir, among weir''s own.';
    END IF;
END $$;
