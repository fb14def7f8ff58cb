-- carry deletes rows of the inbox and writes their positions into the groups' keys, except into keys that somebody else has written
-- since. guarded has the keys, bases the base of each position, and nexts the positions: a key is written only if it has the same base and a lower position.
-- The other arguments are those of weir.commit. It returns false, and does nothing, if another mover is working. It fails with WE090, and undoes everything, if another mover
-- worked in between; with WE092 if a group has moved on.
CREATE OR REPLACE FUNCTION weir.carry(
    ids             bigint[],
    guarded         text[],
    bases           bigint[], -- −1: none
    nexts           bigint[],
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
    OUT moved       boolean
)
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    refused text[];
    kept    boolean[]; -- for each of keys: whether it is written
    wanted  int[];
    stale   int[];
BEGIN
    moved := weir.delete_rows(ids);
    IF NOT moved THEN
        RETURN;
    END IF;

    -- A commit of nothing locks the keys, in the order in which all commits do.
    PERFORM weir.commit('{}', keys, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '', '{}');
    refused := ARRAY(
        SELECT g.key
        FROM unnest(guarded, bases, nexts) AS g(key, base, next)
        CROSS JOIN LATERAL weir.newest_state(g.key) AS s
        CROSS JOIN LATERAL weir.json_of_value(s.value) AS told
        WHERE weir.base_of(told, weir.stamp(s.put_at)) <> g.base
           OR weir.is_carried(told) AND (told ->> 'offset')::bigint >= g.next);
    -- Grouped, because to search the refused keys for each put would take puts × refused steps.
    kept := ARRAY(
        SELECT bool_and(k.kept)
        FROM (SELECT u.key, u.nth, true FROM unnest(keys) WITH ORDINALITY AS u(key, nth)
              UNION ALL
              SELECT u.key, NULL, false FROM unnest(refused) AS u(key)) AS k(key, nth, kept)
        GROUP BY k.key HAVING max(k.nth) IS NOT NULL
        ORDER BY max(k.nth));
    wanted := ARRAY(SELECT n FROM unnest(put_nth) WITH ORDINALITY AS p(nth, n) WHERE kept[p.nth] ORDER BY n);
    SELECT c.stale INTO stale
    FROM weir.commit(
        '{}', keys, '{}', '{}', '{}', '{}', '{}', '{}',
        check_entry, check_nth, check_version,
        ARRAY(SELECT put_entry[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_nth[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_version[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_start[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_size[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        ARRAY(SELECT put_base[n] FROM unnest(wanted) WITH ORDINALITY AS w(n, i) ORDER BY i),
        body, '{}') AS c;
    IF cardinality(stale) > 0 THEN
        RAISE 'a group moved on' USING ERRCODE = 'WE092';
    END IF;
END $$;
