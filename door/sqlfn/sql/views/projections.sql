-- projections has a row for each run of a projection: for the one that readers use, and for the one that is made beside it. How far a run has come is in weir.groups.
CREATE VIEW weir.projections AS
SELECT p.projection,
       (r.run ->> 'number')::bigint AS run,
       coalesce((r.run ->> 'version')::bigint, 0) AS version, -- of the handler
       ARRAY(SELECT json_array_elements_text(coalesce(r.run -> 'categories', '[]'))) AS categories, -- empty: all
       r.nth = 1 AS used, -- readers use this run
       coalesce((p.about ->> 'paused')::boolean, false) AS paused,
       r.run ->> 'group' AS grp
FROM (
    SELECT weir.unescaped(substr(s.key, length('stream/projection/') + 1)) AS projection, replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::json AS about
    FROM weir.state s WHERE s.key >= 'stream/projection/' AND s.key < 'stream/projection0'
    OFFSET 0 -- evaluate this first: the values of other keys are not JSON
) AS p
CROSS JOIN LATERAL (VALUES (1, p.about -> 'run'), (2, p.about -> 'next')) AS r(nth, run)
WHERE r.run IS NOT NULL;
