-- all_carried tells whether all that a group committed with weir.commit_offset is in its keys.
--
-- All of the inbox is walked only for a group of which SQL knows what its keys do not: it may also be that they were deleted.
CREATE OR REPLACE FUNCTION weir.all_carried(grp text) RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT NOT EXISTS (
        SELECT FROM weir.consumer c
        CROSS JOIN LATERAL weir.find_position(c.grp, c.topic, c.partition) AS found
        LEFT JOIN LATERAL weir.newest_state(weir.offset_key(c.grp, c.topic, c.partition)) AS key ON true
        WHERE c.grp = all_carried.grp AND found.place IS DISTINCT FROM (weir.told(key.value) ->> 'offset')::bigint
    ) OR NOT EXISTS (SELECT FROM weir.inbox i WHERE i.grp = all_carried.grp);
END;
