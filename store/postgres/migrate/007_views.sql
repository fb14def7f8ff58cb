-- What there is, for people: topics, their partitions, and groups with their lag.
--
-- A statement sees one version of each row of weir.state and weir.partition, the newest that was committed. So ORDER BY turn DESC LIMIT 1
-- does not change what is shown; it lets a lookup end at the first of however many old versions lie about.

CREATE VIEW weir.partitions AS
SELECT t.name AS topic,
       (u.nth - 1)::int AS partition,
       p.first_offset,
       p.next_offset,
       p.next_offset - p.first_offset AS records,
       p.next_byte - p.first_byte AS bytes, -- of batches, compressed or not
       p.id -- in weir.partition
FROM weir.topic t
CROSS JOIN LATERAL unnest(t.partitions) WITH ORDINALITY AS u(id, nth)
CROSS JOIN LATERAL (
    SELECT x.* FROM weir.partition x WHERE x.id = u.id ORDER BY x.turn DESC LIMIT 1
) AS p;

CREATE VIEW weir.topics AS
SELECT t.name,
       t.id,
       cardinality(t.partitions) AS partitions,
       h.records,
       h.bytes,
       t.settings -- those that were set; for the others Kafka's defaults hold
FROM weir.topic t
CROSS JOIN LATERAL (
    SELECT sum(p.next_offset - p.first_offset)::bigint AS records, sum(p.next_byte - p.first_byte)::bigint AS bytes
    FROM unnest(t.partitions) AS u(id)
    CROSS JOIN LATERAL (
        SELECT x.* FROM weir.partition x WHERE x.id = u.id ORDER BY x.turn DESC LIMIT 1
    ) AS p
) AS h;

-- unescaped undoes what the log does to a group's name in a key: every byte that is not plain is % and two hexadecimal digits.
CREATE FUNCTION weir.unescaped(name text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN coalesce(weir.text_of((
    SELECT string_agg(CASE x.nth WHEN 1 THEN convert_to(x.part, 'UTF8') ELSE decode(left(x.part, 2), 'hex') || convert_to(substr(x.part, 3), 'UTF8') END,
                      '' ORDER BY x.nth)
    FROM string_to_table(unescaped.name, '%') WITH ORDINALITY AS x(part, nth)
)), unescaped.name);

-- assigned lists what the members of a group were given: consumers have partitions, peers hold some as their own, and some until they give
-- them back. It is STRICT so that the planner leaves it whole, and believes the number of rows: of the three steps in it, each makes a
-- hundred rows of one in the planner's eyes, and the plan seems worth compiling (jit).
CREATE FUNCTION weir.assigned(state jsonb) RETURNS TABLE (topic text, partition int, member text)
LANGUAGE sql IMMUTABLE STRICT
ROWS 10
BEGIN ATOMIC
    SELECT t.topic, p.partition::int, m.member ->> 'client_id'
    FROM jsonb_array_elements(assigned.state -> 'members') AS m(member)
    CROSS JOIN LATERAL (
        SELECT * FROM jsonb_each(m.member -> 'partitions')
        UNION ALL
        SELECT h.share ->> 'topic', coalesce(h.share -> 'own', '[]') || coalesce(h.share -> 'revoking', '[]')
        FROM jsonb_array_elements(m.member -> 'holds') AS h(share)
    ) AS t(topic, partitions)
    CROSS JOIN LATERAL jsonb_array_elements_text(t.partitions) AS p(partition);
END;

-- groups has a row for each partition that a group committed an offset of, or that one of its members was given; one with no topic
-- where there is none.
CREATE VIEW weir.groups AS
WITH known AS MATERIALIZED (
    SELECT x.name, CASE WHEN x.state ->> 'protocol_type' = 'weir' AND NOT EXISTS ( -- peers, and all are dead
        SELECT FROM weir.state m
        WHERE m.key >= 'group/member/' || x.name || '/' AND m.key < 'group/member/' || x.name || '0'
          AND clock_timestamp() - m.put_at <= interval '1 ms' * (convert_from(m.value, 'UTF8')::json ->> 'session_ms')::int
    ) THEN x.state - 'members' ELSE x.state END AS state
    FROM (
        -- Clients' own words are in it. PostgreSQL's text takes all but the zero character.
        SELECT substr(s.key, 13) AS name, replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::jsonb AS state
        FROM weir.state s WHERE s.key >= 'group/state/' AND s.key < 'group/state0'
    ) AS x
), given AS (
    SELECT k.name, a.topic, a.partition, a.member FROM known k CROSS JOIN LATERAL weir.assigned(k.state) AS a
), committed AS (
    SELECT split_part(s.key, '/', 3) AS name, c.name AS topic, split_part(s.key, '/', 5)::int AS partition,
           (replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::jsonb ->> 'offset')::bigint AS position
    FROM weir.state s
    JOIN weir.topic c ON c.id = split_part(s.key, '/', 4)::uuid -- a topic that was deleted and made again is another
    WHERE s.key >= 'group/offset/' AND s.key < 'group/offset0'
), reading AS (
    SELECT name, topic, partition, o.position, g.member, p.first_offset, p.next_offset
    FROM committed o
    FULL JOIN given g USING (name, topic, partition)
    JOIN weir.partitions p USING (topic, partition)
)
SELECT weir.unescaped(k.name) AS grp,
       CASE WHEN k.state ? 'members' THEN 'Stable' ELSE 'Empty' END AS state, -- a round of joining that is not done yet shows as the one before
       (k.state ->> 'generation')::int AS generation,
       coalesce(jsonb_array_length(k.state -> 'members'), 0) AS members,
       r.topic,
       r.partition,
       r.member, -- the client that reads it
       r.position AS committed_offset,
       r.next_offset AS end_offset,
       r.next_offset - least(r.next_offset, greatest(r.position, r.first_offset)) AS lag -- they leave NULL out
FROM known k
LEFT JOIN reading r USING (name);
