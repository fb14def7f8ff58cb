-- newest has the newest version of every partition's row. It finds them by index, from one partition to the next. SELECT … FROM
-- weir.partition returns the same rows, and is faster unless many old versions make the table large.
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
