-- shown_metadata returns metadata as weir.headers shows it once it is carried: text that begins with \x is shown as bytes.
CREATE OR REPLACE FUNCTION weir.shown_metadata(metadata jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN metadata IS NULL THEN '{}'
    WHEN metadata::text NOT LIKE E'%"\\\\\\\\x%' THEN metadata
    ELSE (
        SELECT jsonb_object_agg(
            CASE WHEN starts_with(m.name, E'\\x') THEN E'\\x' || encode(convert_to(m.name, 'UTF8'), 'hex') ELSE m.name END,
            CASE WHEN starts_with(m.content, E'\\x') THEN E'\\x' || encode(convert_to(m.content, 'UTF8'), 'hex') ELSE m.content END)
        FROM jsonb_each_text(metadata) AS m(name, content)
    )
END;
