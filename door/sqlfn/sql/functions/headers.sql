-- headers returns the headers of a record as one object; at is where their number begins in raw. If texts is set, it fails if a header is not text.
--
--   {"name": "value"}      a value that is text
--   {"name": null}         a value that is null
--   {"name": "\x00ff"}     bytes that are not text, as PostgreSQL writes them; so ("headers" ->> 'name')::bytea reads them.
--                          Text that begins with \x is shown like this, too
--   {"name": ["a", "b"]}   a name that comes more than once, in order
CREATE OR REPLACE FUNCTION weir.headers(raw bytea, at int, texts boolean) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
DECLARE
    few constant int := 16;
    count  int := weir.varint(raw, at) >> 1;
    size   int;
    field  bytea;
    shown  text;
    names  text[] := '{}';
    fields text[] := '{}';
    again  boolean := count > few; -- names may repeat: with many headers this is not checked, because that would take count² comparisons
BEGIN
    at := at + weir.varint_size(raw, at);
    FOR i IN 1..2 * count LOOP -- a name, a value, a name, a value, …
        size := weir.varint(raw, at);
        at := at + weir.varint_size(raw, at);
        shown := NULL;
        IF size <> 1 THEN -- 1 is −1, null
            size := size >> 1;
            field := substring(raw FROM at + 1 FOR size);
            at := at + size;
            shown := CASE WHEN texts THEN convert_from(field, 'UTF8') ELSE weir.text_of(field) END;
            IF shown IS NULL OR starts_with(shown, E'\\x') THEN
                shown := E'\\x' || encode(field, 'hex'); -- E: independent of standard_conforming_strings
            END IF;
        END IF;
        IF i % 2 = 0 THEN
            fields := fields || shown;
        ELSE
            again := again OR shown = ANY (names);
            names := names || shown;
        END IF;
    END LOOP;
    IF NOT again THEN
        RETURN jsonb_object(names, fields);
    END IF;
    RETURN jsonb_object_agg(x.name, CASE cardinality(x.fields) WHEN 1 THEN to_jsonb(x.fields[1]) ELSE to_jsonb(x.fields) END)
    FROM (
        SELECT u.name, array_agg(u.field ORDER BY u.nth) AS fields
        FROM unnest(names, fields) WITH ORDINALITY AS u(name, field, nth)
        GROUP BY u.name
    ) AS x;
END $$;
