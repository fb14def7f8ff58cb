-- move deletes rows of the inbox and appends their events to the log, or does neither: see take and weir.commit. It fails, and undoes everything,
-- with WE091 if a partition is deleted, and with WE092 if a check fails.
CREATE OR REPLACE FUNCTION weir.move(
    ids             bigint[],
    partitions      bigint[],
    keys            text[],
    batch_entry     int[],
    batch_nth       int[],
    batch_records   int[],
    batch_time      bigint[],
    batch_start     int[],
    batch_size      int[],
    check_entry     int[],
    check_nth       int[],
    check_version   bigint[],
    put_entry       int[],
    put_nth         int[],
    put_version     bigint[],
    put_start       int[],
    put_size        int[],
    put_base        int[],
    body            bytea,
    OUT moved       boolean,
    OUT bases       bigint[]
)
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    homeless int[];
    stale    int[];
BEGIN
    moved := weir.delete_rows(ids); -- the rows before the partitions, so that partitions are locked only for a short time
    IF moved AND cardinality(batch_nth) > 0 THEN
        SELECT c.bases, c.homeless, c.stale INTO bases, homeless, stale
        FROM weir.commit(partitions, keys, batch_entry, batch_nth, batch_records, batch_time, batch_start, batch_size,
                         check_entry, check_nth, check_version,
                         put_entry, put_nth, put_version, put_start, put_size, put_base, body, '{}') AS c;
        IF cardinality(homeless) > 0 THEN
            RAISE 'a partition is gone' USING ERRCODE = 'WE091';
        ELSIF cardinality(stale) > 0 THEN
            RAISE 'a key is at another version' USING ERRCODE = 'WE092';
        END IF;
    END IF;
END $$;
