-- check_session fails if the log must not be written with the settings of this session, and makes the transaction durable.
CREATE OR REPLACE FUNCTION weir.check_session() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- With a snapshot taken before the locks, offsets would be assigned from old rows.
        RAISE 'weir must commit in read committed transactions, but the isolation level is %', current_setting('transaction_isolation')
        USING HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''';
    END IF;
    IF current_setting('session_replication_role') = 'replica' THEN
        -- Without the triggers of weir.state, SQL sessions would not learn of topics.
        RAISE 'weir cannot commit while session_replication_role is replica: its triggers do not run'
        USING HINT = 'ALTER ROLE … SET session_replication_role = origin';
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- for this transaction
    END IF;
END $$;
