-- From PostgreSQL 15 on the sequence of an unlogged table is unlogged too, and on a standby that was promoted it cannot be read ("bad magic number in
-- sequence"): no session could claim. A sequence costs a record of the WAL for each 32 numbers. One that is broken already is made anew, above all numbers so far.
DO $$
BEGIN
    IF current_setting('server_version_num')::int < 150000 THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM pg_catalog.nextval('weir.claim_request_id_seq');
    EXCEPTION WHEN OTHERS THEN
        ALTER TABLE weir.claim_request ALTER id DROP IDENTITY;
        EXECUTE format('ALTER TABLE weir.claim_request ALTER id ADD GENERATED ALWAYS AS IDENTITY (START WITH %s)',
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END;
    EXECUTE 'ALTER SEQUENCE weir.claim_request_id_seq SET LOGGED';
END
$$;
