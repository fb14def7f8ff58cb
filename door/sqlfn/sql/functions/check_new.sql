-- check_new raises the error for what cannot be created: the name is not valid or reserved, the number of partitions is not allowed, or the settings are no object.
CREATE OR REPLACE FUNCTION weir.check_new(kind text, name text, longest int, partitions int, settings jsonb) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF name IS NULL THEN
        RAISE 'name is null' USING ERRCODE = 'null_value_not_allowed', HINT = format('Give the name of the %s.', kind);
    ELSIF name ~ '[^a-zA-Z0-9._-]' OR length(name) NOT BETWEEN 1 AND longest OR name IN ('.', '..') THEN
        RAISE '"%" is not a valid name of a %', left(name, 64), kind
        USING ERRCODE = 'invalid_parameter_value',
              HINT = format('A name has 1 to %s of the characters a-z, A-Z, 0-9, ".", "_" and "-", and is not "." or "..".', longest);
    ELSIF name IN ('__consumer_offsets', 'weir.audit') OR starts_with(name, '__weir_') THEN
        RAISE 'the name "%" is reserved for weir', name USING ERRCODE = 'WE009', HINT = 'Choose another name.';
    ELSIF partitions NOT BETWEEN 1 AND 10000 THEN
        RAISE 'partitions is %', partitions USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 1 to 10000.';
    ELSIF jsonb_typeof(settings) <> 'object' THEN
        RAISE 'the settings are of type %', jsonb_typeof(settings) USING ERRCODE = 'invalid_parameter_value', HINT = 'Give an object, such as {"retention.ms": "86400000"}.';
    END IF;
END $$;
