-- move_appended is move for rows of the inbox that append to streams: it also deletes the rows of weir.held with versions above after, up to upto, and those of weir.appended from first to
-- below next. Nobody else locks these rows.
CREATE OR REPLACE FUNCTION weir.move_appended(
    ids             bigint[],
    heads           text[],   -- the keys of the streams' heads
    after           bigint[],
    upto            bigint[],
    first           bigint[],
    next            bigint[],
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
BEGIN
    SELECT m.moved, m.bases INTO moved, bases
    FROM weir.move(ids, partitions, keys, batch_entry, batch_nth, batch_records, batch_time, batch_start, batch_size, check_entry, check_nth, check_version,
                   put_entry, put_nth, put_version, put_start, put_size, put_base, body) AS m;
    IF moved THEN
        FOR n IN 1 .. cardinality(heads) LOOP
            DELETE FROM weir.held h WHERE h.key = heads[n] AND h.version > after[n] AND h.version <= upto[n];
            DELETE FROM weir.appended a WHERE a.key = heads[n] AND a.version >= first[n] AND a.version < next[n];
        END LOOP;
    END IF;
END $$;
