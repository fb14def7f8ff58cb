-- checksum_fits reports whether a batch is unchanged: the CRC-32C at byte 17 must be that of the bytes from 21 on. PostgreSQL has the function crc32c since version 18.
-- On older servers the call is no error: a statement is planned only when it is reached.
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
