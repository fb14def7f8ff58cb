-- json_of parses JSON, and returns NULL for text that is not JSON.
CREATE OR REPLACE FUNCTION weir.json_of(content text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    RETURN content::jsonb;
EXCEPTION WHEN invalid_text_representation THEN
    RETURN NULL;
END $$;
