-- text_of returns bytes as text, or NULL if they are not text.
CREATE OR REPLACE FUNCTION weir.text_of(bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire THEN
    RETURN NULL;
END $$;
