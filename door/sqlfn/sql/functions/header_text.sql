-- header_text undoes how weir.headers shows text that begins with \x. Bytes that are not text stay as they are shown.
CREATE OR REPLACE FUNCTION weir.header_text(shown text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN starts_with(shown, E'\\x') THEN coalesce(weir.text_of(shown::bytea), shown) ELSE shown END;
