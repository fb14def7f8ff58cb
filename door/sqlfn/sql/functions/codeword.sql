-- codeword returns the bytes of a batch that its CRC-32C covers, and the CRC, as one codeword of the CRC: see is_codeword. A CRC starts with 32 ones and is stored inverted: the four
-- bytes at the front and at the end represent this. In a codeword the least significant byte comes first; in a batch it comes last.
CREATE OR REPLACE FUNCTION weir.codeword(raw bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE
RETURN '\x54641f64'::bytea || substring(raw FROM 22) || (
    substring(raw FROM 21 FOR 1) || substring(raw FROM 20 FOR 1) || substring(raw FROM 19 FOR 1) || substring(raw FROM 18 FOR 1) || '\x38b498b7'::bytea
);
