-- The tables of the log. They are in the schema weir, which exists when this runs.
--
--   partition ──< run >── segment ── batch_1, batch_2, …        state
--
-- A segment is one table of batches. It is filled, and later dropped as a whole. A run is the batches of one partition in
-- one segment. The run being written is part of the partition's row; earlier runs are rows of weir.run.

CREATE TABLE weir.migration (
    number     int         PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE weir.segment (
    number    int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- never reused
    -- A segment of survivors takes batches that are still needed, from segments where most are not.
    survivors boolean     NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sealed_at timestamptz,
    payload   bigint -- an estimate of the bytes of its batches when it was sealed; the table is larger
);

-- One open segment takes the commits; at most one takes survivors.
CREATE UNIQUE INDEX segment_open ON weir.segment (survivors) WHERE sealed_at IS NULL;

-- Rows of partition and state change with every flush, and one long transaction anywhere in the database keeps all their
-- old versions. Two things keep the newest version easy to find, however many old versions there are:
--
--   * turn goes up with every 64th write and is part of the key, newest first: a lookup reads at most 64 versions.
--   * between turns no indexed column changes, so the versions stay on their page (HOT) and are pruned there.
--
-- So every lookup has ORDER BY turn DESC LIMIT 1, and every change has the turn that it found in its WHERE.
CREATE TABLE weir.partition (
    id           bigint NOT NULL,
    turn         bigint NOT NULL DEFAULT 0,
    writes       bigint NOT NULL DEFAULT 0,
    first_offset bigint NOT NULL DEFAULT 0,
    next_offset  bigint NOT NULL DEFAULT 0,
    -- Bytes are counted from the first byte ever appended: the size between two batches is a difference.
    first_byte   bigint NOT NULL DEFAULT 0, -- where the batch that holds first_offset begins
    next_byte    bigint NOT NULL DEFAULT 0,
    -- The run being written: [run_offset, next_offset) in segment.
    segment      int    NOT NULL DEFAULT 0, -- 0: nothing was written yet
    run_offset   bigint NOT NULL DEFAULT 0,
    run_byte     bigint NOT NULL DEFAULT 0,
    run_time     bigint NOT NULL DEFAULT -1 -- its newest max_time
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000
);

CREATE UNIQUE INDEX partition_key ON weir.partition (id, turn DESC);

CREATE TABLE weir.run (
    partition_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    next_offset  bigint NOT NULL,
    first_byte   bigint NOT NULL,
    next_byte    bigint NOT NULL,
    max_time     bigint NOT NULL,
    segment      int    NOT NULL,
    -- The key has the end of the run: the run that holds an offset is the first that ends above it.
    PRIMARY KEY (partition_id, next_offset)
);

CREATE INDEX run_segment ON weir.run (segment);

-- The parent table of all segments; it has no rows of its own. SELECT … FROM weir.batch reads all segments.
--
-- A batch is stored in pieces, each a row that fills a page. TOAST would store four chunks per page, with an index entry
-- for each: see docs/decisions. In a page of 8192 bytes 8088 are left:
--   8192 − page header 24 − line pointer 4 = 8164, rounded down to 8160, − row header 24 − columns 44 − length word 4.
CREATE TABLE weir.batch (
    partition_id bigint NOT NULL,
    base_offset  bigint NOT NULL,
    byte         bigint NOT NULL, -- where the batch begins
    max_time     bigint NOT NULL,
    records      int    NOT NULL,
    size         int    NOT NULL, -- of the whole batch
    piece        int    NOT NULL,
    bytes        bytea  NOT NULL,
    PRIMARY KEY (partition_id, base_offset, piece)
);

ALTER TABLE weir.batch ALTER COLUMN bytes SET STORAGE PLAIN;

CREATE TABLE weir.state (
    key     text COLLATE "C" NOT NULL,
    turn    bigint           NOT NULL DEFAULT 0,
    writes  bigint           NOT NULL DEFAULT 0,
    version bigint           NOT NULL,
    put_at  timestamptz      NOT NULL,
    value   bytea            NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000
);

CREATE UNIQUE INDEX state_key ON weir.state (key, turn DESC);
