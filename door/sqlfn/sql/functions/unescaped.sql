-- unescaped returns a name from a key, where each special byte is written as % and two hexadecimal digits.
CREATE OR REPLACE FUNCTION weir.unescaped(name text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN coalesce(weir.text_of((
    SELECT string_agg(CASE x.nth WHEN 1 THEN convert_to(x.part, 'UTF8') ELSE decode(left(x.part, 2), 'hex') || convert_to(substr(x.part, 3), 'UTF8') END,
                      '' ORDER BY x.nth)
    FROM string_to_table(unescaped.name, '%') WITH ORDINALITY AS x(part, nth)
)), unescaped.name);
