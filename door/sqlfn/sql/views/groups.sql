-- groups has a row for each partition for which a group has committed an offset, or that is assigned to one of its members. A group without such
-- partitions has one row, with no topic.
CREATE OR REPLACE VIEW weir.groups AS
WITH known AS MATERIALIZED (
    SELECT x.name, CASE WHEN x.state ->> 'protocol_type' IN ('weir', 'weir+kafka') AND NOT EXISTS ( -- a group of peers, whose sessions have all ended
        SELECT FROM weir.state m
        WHERE m.key >= 'group/member/' || x.name || '/' AND m.key < 'group/member/' || x.name || '0'
          AND clock_timestamp() - m.put_at <= interval '1 ms' * (convert_from(m.value, 'UTF8')::json ->> 'session_ms')::int
    ) THEN x.state - 'members' ELSE x.state END AS state
    FROM (
        -- The value has text from clients. PostgreSQL's text can have any character except the zero character.
        SELECT substr(s.key, 13) AS name, replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::jsonb AS state
        FROM weir.state s WHERE s.key >= 'group/state/' AND s.key < 'group/state0'
    ) AS x
), given AS (
    SELECT k.name, a.topic, a.partition, a.member FROM known k CROSS JOIN LATERAL weir.assigned(k.state) AS a
), committed AS (
    SELECT split_part(s.key, '/', 3) AS name, c.name AS topic, split_part(s.key, '/', 5)::int AS partition,
           (replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::jsonb ->> 'offset')::bigint AS position
    FROM weir.state s
    JOIN weir.topic c ON c.id = split_part(s.key, '/', 4)::uuid -- a topic that was deleted and created again has another id
    WHERE s.key >= 'group/offset/' AND s.key < 'group/offset0'
), reading AS (
    SELECT name, topic, partition, o.position, g.member, p.first_offset, p.next_offset
    FROM committed o
    FULL JOIN given g USING (name, topic, partition)
    JOIN weir.partitions p USING (topic, partition)
)
SELECT weir.unescaped(k.name) AS grp,
       CASE WHEN k.state ? 'members' THEN 'Stable' ELSE 'Empty' END AS state, -- during a rebalance: the state before it
       (k.state ->> 'generation')::int AS generation,
       coalesce(jsonb_array_length(k.state -> 'members'), 0) AS members,
       r.topic,
       r.partition,
       r.member, -- the client that reads it
       r.position AS committed_offset,
       r.next_offset AS end_offset,
       r.next_offset - least(r.next_offset, greatest(r.position, r.first_offset)) AS lag -- least and greatest ignore NULL
FROM known k
LEFT JOIN reading r USING (name);
