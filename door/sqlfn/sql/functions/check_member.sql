-- check_member fails if generation is not the current one, or member is not in the group.
CREATE OR REPLACE FUNCTION weir.check_member(grp text, member text, generation int) RETURNS void
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    about json;
BEGIN
    SELECT weir.json_of_value(s.value) INTO about
    FROM weir.newest_state('group/state/' || weir.escape(grp)) AS s;
    IF generation IS NOT NULL AND generation IS DISTINCT FROM (about ->> 'generation')::int THEN
        RAISE 'generation % is not the current one of group "%", which is %', generation, grp, coalesce(about ->> 'generation', 'none')
        USING ERRCODE = 'WE005', HINT = 'Roll back, and continue with the partitions that the group assigns to you now.';
    END IF;
    IF member IS NOT NULL AND NOT EXISTS (
        SELECT FROM json_array_elements(about -> 'members') AS m WHERE m ->> 'id' = member
    ) THEN
        RAISE '"%" is not a member of group "%"', member, grp
        USING ERRCODE = 'WE005', HINT = 'Roll back, and join the group again.';
    END IF;
END $$;
