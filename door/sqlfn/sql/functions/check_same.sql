-- check_same fails if a topic exists that has other partitions, or another setting, than are asked for. A setting that was never set has its default, which weir knows: it compares these
-- when it carries out the request.
CREATE OR REPLACE FUNCTION weir.check_same(kind text, name text, partitions int, settings jsonb) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    about weir.topic;
    s     record;
BEGIN
    SELECT t.* INTO about FROM weir.topic t WHERE t.name = check_same.name;
    IF partitions <> cardinality(about.partitions) THEN
        PERFORM weir.refuse_other(kind, name, 'number of partitions', cardinality(about.partitions)::text, partitions::text);
    END IF;
    FOR s IN SELECT a.key, a.value, about.settings ->> a.key AS is_now FROM jsonb_each_text(settings) AS a LOOP
        IF s.value <> s.is_now THEN
            PERFORM weir.refuse_other(kind, name, s.key, s.is_now, s.value);
        END IF;
    END LOOP;
END $$;
