-- describe keeps weir.topic equal to weir.state. Each commit holds the key's lock, so it never runs twice at the same time for one topic.
CREATE OR REPLACE FUNCTION weir.describe() RETURNS trigger
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    DELETE FROM weir.topic t WHERE t.name = substr(coalesce(NEW.key, OLD.key), 7);
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO weir.topic SELECT d.* FROM weir.described(NEW.key, NEW.value) AS d;
    END IF;
    RETURN NULL;
END $$;
