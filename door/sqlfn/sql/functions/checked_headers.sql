-- checked_headers checks headers and returns them as they are stored in the inbox: NULL for none.
CREATE OR REPLACE FUNCTION weir.checked_headers(headers jsonb) RETURNS jsonb
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    wrong record;
BEGIN
    IF headers IS NULL OR headers = '{}' THEN
        RETURN NULL;
    ELSIF jsonb_typeof(headers) <> 'object' THEN
        RAISE 'headers is of type %', jsonb_typeof(headers)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be an object, such as {"source": "billing"}.';
    END IF;
    SELECT h.key, jsonb_typeof(h.value) AS type INTO wrong
    FROM jsonb_each(headers) AS h WHERE jsonb_typeof(h.value) NOT IN ('string', 'null') LIMIT 1;
    IF FOUND THEN
        RAISE 'headers: "%" is of type %', wrong.key, wrong.type
        USING ERRCODE = 'invalid_parameter_value', HINT = 'A header must be a string or null.';
    END IF;
    RETURN headers;
END $$;
