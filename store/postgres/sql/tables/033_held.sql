-- A session may reserve a key for its transaction (functions/hold.sql) and commit a change of the key: a row in held. The mover of the SQL
-- door carries (moves) the change into the log later. Until then, commit refuses entries with a check of the key that is marked as holdable.
--
-- version is the version that the key gets when the change is carried. So rows at or below the key's version are carried, and only versions above it are
-- looked up: deleted rows that a long transaction still sees are never read.
CREATE TABLE weir.held (
    key     text COLLATE "C" NOT NULL,
    version bigint           NOT NULL,
    PRIMARY KEY (key, version)
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- secret makes the numbers of advisory locks unpredictable for other sessions (functions/lock_number.sql).
CREATE TABLE weir.secret (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea   NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
);

INSERT INTO weir.secret DEFAULT VALUES;

-- commit has one more argument and one more result. An older weir must not commit any more: it would not notice that a key is held.
DO $$ BEGIN
    IF to_regprocedure('weir.commit(bigint[], text[], int[], int[], int[], bigint[], int[], int[], int[], int[], bigint[], int[], int[], bigint[], int[], int[], int[], bytea)') IS NOT NULL THEN
        DROP FUNCTION weir.commit(bigint[], text[], int[], int[], int[], bigint[], int[], int[], int[], int[], bigint[], int[], int[], bigint[], int[], int[], int[], bytea);
    END IF;
END $$;
