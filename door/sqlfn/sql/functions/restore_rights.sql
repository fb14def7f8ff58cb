-- restore_rights runs when a process starts. It creates the roles that are missing and grants rights that are
-- missing, as far as it may. It warns of the others, and so does weir doctor.
CREATE OR REPLACE FUNCTION weir.restore_rights() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF EXISTS (SELECT FROM weir.missing_rights()) THEN
        LOCK TABLE weir.rights IN SHARE ROW EXCLUSIVE MODE; -- one process at a time
        IF EXISTS (SELECT FROM weir.missing_rights()) THEN
            PERFORM weir.set_rights();
        END IF;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'programs that publish or consume with SQL may lack rights, and % may not grant them: %', current_user, SQLERRM
    USING HINT = 'As the owner of the schema: SELECT weir.set_rights()';
END $$;
