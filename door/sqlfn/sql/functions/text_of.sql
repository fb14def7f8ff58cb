-- text_of gives bytes as text, or NULL where they are none.
CREATE OR REPLACE FUNCTION weir.text_of(bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire THEN
    RETURN NULL;
END $$;
