-- codeword gives a batch's checked bytes and their CRC-32C as one codeword of the CRC: see is_codeword. A CRC starts with 32 ones and is stored inverted: the four
-- bytes in front and at the end stand for that. In a codeword the byte that counts least comes first; in a batch it comes last.
CREATE OR REPLACE FUNCTION weir.codeword(raw bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE
RETURN '\x54641f64'::bytea || substring(raw FROM 22) || (
    substring(raw FROM 21 FOR 1) || substring(raw FROM 20 FOR 1) || substring(raw FROM 19 FOR 1) || substring(raw FROM 18 FOR 1) || '\x38b498b7'::bytea
);
