-- assigned lists the partitions that are assigned to the members of a group; peers also have partitions that they must give back, but still hold.
-- It is STRICT so that the planner does not inline it, and uses the declared number of rows. Inlined, the planner would estimate a
-- hundred rows for each row at each of its three steps, and compile the plan (jit).
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
