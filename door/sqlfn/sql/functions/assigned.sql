-- assigned lists what the members of a group were given: consumers have partitions, peers hold some as their own, and some until they give
-- them back. It is STRICT so that the planner leaves it whole, and believes the number of rows: of the three steps in it, each makes a
-- hundred rows of one in the planner's eyes, and the plan seems worth compiling (jit).
CREATE OR REPLACE FUNCTION weir.assigned(state jsonb) RETURNS TABLE (topic text, partition int, member text)
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
