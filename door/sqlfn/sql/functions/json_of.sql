-- json_of parses JSON. It returns NULL for text that is not JSON, or that PostgreSQL's type jsonb cannot hold: numbers of many digits, very deep nesting. It writes the zero
-- character, which text cannot hold, as U+FFFD. What the server lacks for a moment, such as memory, is still an error.
CREATE OR REPLACE FUNCTION weir.json_of(content text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    RETURN content::jsonb;
EXCEPTION
    WHEN untranslatable_character THEN
        RETURN weir.json_of(replace(content, E'\\u0000', E'\\ufffd'));
    WHEN data_exception OR program_limit_exceeded THEN -- all errors of these two classes
        RETURN NULL;
END $$;
