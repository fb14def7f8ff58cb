-- is_codeword reports whether bytes are a codeword of CRC-32C, or several in a row: read as a polynomial over GF(2), they are a multiple of the CRC's polynomial.
-- It is for servers that have no crc32c. All that it does with many bytes is done in C; to XOR bytes they must be bits, and the way to bits is hexadecimal.
--
-- The CRC's polynomial has multiples of few terms, 1 + y^484 + y^100 + y^6777 among them, where y is x^8. So bytes in front can be cut off if they are XORed
-- into those 6777, 6677 and 6293 bytes further on; what is left is a codeword if it was one before. That is a rule. Others make it shorter:
--
--   bytes ──6293 at a time──► bits ──rules──► at most 130 bytes ──► 32 parities
CREATE OR REPLACE FUNCTION weir.is_codeword(bytes bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT
:pinned
AS $$
DECLARE
    step constant int := 6293; -- bytes
    -- Distances in bits: the least, the greatest, the others, zeros. (NULL in such text depends on the caller's array_nulls.)
    rules constant int[] := '{
        {50344, 54216, 53416, 0, 0, 0, 0},
        {26840, 27488, 27096, 27312, 27456, 0, 0},
        {9960, 10280, 9976, 10128, 10216, 0, 0},
        {2216, 2480, 2224, 2240, 2288, 2304, 2320},
        {528, 1040, 536, 560, 776, 784, 840}}';
    -- The top bits of x^0, x^1, … modulo the polynomial, from the right. The AND of a codeword and these has an even number of ones, by however many bytes they
    -- are moved. If it is even 32 times in a row, it always is, and the bytes are a codeword.
    tops constant bit varying := X'cbf851e2dd43ed411066528e27fcf90ec767ce2507a6c69e5c4d4ae6852cbc02ec5df3039c60c184d3d0567119a804d57c5382d7c7c5fa9678a742cedac7a1e7'
        || X'a098a33285c1619c9471484c6a2050053a6cdc7fdb38b1e0aa71fc328e5cc360a65d58da3d7236a1a6ca388f4670e404ed0d131ebaf708847e9809fdb5793d51'
        || X'5f0af469e93a5c7461d9bbe1f51ecd5419185327de252c6f38f6ca911f01000000';
    s    bit varying := '';
    head bit varying;
    size int;
    cut  int;
    done int := 0; -- bytes
    rule int := 1;
BEGIN
    LOOP
        cut := least(length(s) - rules[rule][2], rules[rule][1]);
        IF cut > 0 THEN
            head := "bit"(substring(s FOR cut), length(s) - cut, true);
            s := substring(s FROM cut + 1);
            FOR i IN 1..7 LOOP
                EXIT WHEN rules[rule][i] = 0;
                s := s # (head >> (rules[rule][i] - cut));
            END LOOP;
        ELSIF done < octet_length(bytes) THEN
            s := s || ('x' || encode(substring(bytes FROM done + 1 FOR step), 'hex'))::bit varying;
            done := done + step;
        ELSIF rule < array_length(rules, 1) THEN
            rule := rule + 1;
        ELSE
            EXIT;
        END IF;
    END LOOP;
    size := length(s);
    FOR moved IN 0..31 LOOP
        IF bit_count(s & substring(tops FROM length(tops) - 8 * moved - size + 1 FOR size)) % 2 = 1 THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;
