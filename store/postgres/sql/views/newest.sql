-- newest is the newest version of every partition's row, found by walking the key from one partition to the next. SELECT … FROM
-- weir.partition finds the same, and is faster where old versions do not swell the table.
CREATE VIEW weir.newest AS
WITH RECURSIVE walk AS (
    (SELECT x.* FROM weir.partition x ORDER BY x.id, x.turn DESC LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM walk
    CROSS JOIN LATERAL (
        SELECT x.* FROM weir.partition x WHERE x.id > walk.id ORDER BY x.id, x.turn DESC LIMIT 1
    ) AS following
)
SELECT * FROM walk;
