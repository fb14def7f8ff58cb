-- checksum_fits tells whether a batch is as it was written: the CRC-32C at byte 17 is that of all from byte 21 on. PostgreSQL computes it from version 18
-- on (crc32c). What is not there is not planned before it is met.
CREATE OR REPLACE FUNCTION weir.checksum_fits(raw bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    IF current_setting('server_version_num')::int < 180000 THEN
        RETURN weir.is_codeword(weir.codeword(raw));
    END IF;
    RETURN crc32c(substring(raw FROM 22)) = ('x' || encode(substring(raw FROM 18 FOR 4), 'hex'))::bit(32)::bigint;
END $$;
