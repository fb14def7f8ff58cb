-- stream_head returns the key of a stream's head, as use/stream writes it, after it has checked the name.
CREATE OR REPLACE FUNCTION weir.stream_head(topic uuid, stream text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    IF stream IS NULL THEN
        RAISE 'stream is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the name of the stream.';
    ELSIF octet_length(stream) NOT BETWEEN 1 AND 255 THEN
        RAISE 'stream has % bytes', octet_length(stream) USING ERRCODE = 'invalid_parameter_value', HINT = 'The name of a stream must have 1 to 255 bytes.';
    ELSIF stream ~ E'[\x01-\x1f\x7f]' THEN
        RAISE 'stream has control characters' USING ERRCODE = 'invalid_parameter_value', HINT = 'The name of a stream must be text without control characters.';
    END IF;
    RETURN 'stream/head/' || replace(topic::text, '-', '') || '/' || weir.escape(stream);
END $$;
