-- refuse_other raises the error for something that exists with other settings than are asked for now.
CREATE OR REPLACE FUNCTION weir.refuse_other(kind text, name text, what text, is_now text, asked text) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    RAISE '% "%" exists, and its % is %, not %', kind, name, what, is_now, asked
    USING ERRCODE = 'WE016', HINT = format('Ask for what the %1$s has, or change the %1$s: weir %1$s alter %2$s', CASE kind WHEN 'category' THEN 'topic' ELSE kind END, name);
END $$;
