-- weir_is_codeword reports whether the CRC-32C of a batch fits its bytes: 1 or 0. It is for MySQL, which has no such function.
--
-- The bytes that the CRC covers, and the CRC behind them, are a polynomial over GF(2). If the CRC fits, that is a codeword: a multiple of the CRC's polynomial. A CRC
-- begins with 32 ones and is stored inverted: the four bytes at the front and at the end represent this. In a codeword the least significant byte of the CRC comes first.
--
-- The CRC's polynomial has a multiple of few terms: 1 + y^25 + y^32 + y^33 + y^60 + y^63 + y^64 + y^130, where y is x^8. So bytes in front can be cut off if they are
-- XORed into those that many bytes further on: 130, 130 − 25, … 66; what is left is a codeword if it was one before. The square of a polynomial over GF(2) has twice the
-- exponents, so the same holds for 2, 4, 8, … times these distances: each step cuts off about a quarter, and all that is done with many bytes is done in C.
CREATE PROCEDURE weir_is_codeword(IN raw LONGBLOB, OUT sound INT)
    NO SQL
    SQL SECURITY DEFINER
    COMMENT ':version'
BEGIN
    DECLARE s LONGBLOB DEFAULT CONCAT(x'54641f64', SUBSTR(raw, 22), REVERSE(SUBSTR(raw, 18, 4)), x'38b498b7');
    DECLARE scale INT DEFAULT 1; -- how many times the distances
    DECLARE cut, term, target, moved INT DEFAULT 0;
    -- The top bits of x^0, x^1, … modulo the polynomial, from the right. The AND of a codeword and these has an even number of ones, by however many bytes they
    -- are moved. If it is even 32 times in a row, it always is, and the bytes are a codeword.
    DECLARE tops VARBINARY(161) DEFAULT CONCAT(
        x'cbf851e2dd43ed411066528e27fcf90ec767ce2507a6c69e5c4d4ae6852cbc02ec5df3039c60c184d3d0567119a804d57c5382d7c7c5fa9678a742cedac7a1e7',
        x'a098a33285c1619c9471484c6a2050053a6cdc7fdb38b1e0aa71fc328e5cc360a65d58da3d7236a1a6ca388f4670e404ed0d131ebaf708847e9809fdb5793d51',
        x'5f0af469e93a5c7461d9bbe1f51ecd5419185327de252c6f38f6ca911f01000000');
    WHILE LENGTH(s) > 2 * 130 * scale DO
        SET scale = 2 * scale;
    END WHILE;
    WHILE scale > 0 DO
        SET cut = LEAST(LENGTH(s) - 130 * scale, 66 * scale), term = 1;
        IF cut > 0 THEN
            WHILE term <= 7 DO
                SET target = 1 + scale * ELT(term, 66, 67, 70, 97, 98, 105, 130), term = term + 1;
                SET s = INSERT(s, target, cut, SUBSTR(s, target, cut) ^ LEFT(s, cut));
            END WHILE;
            SET s = SUBSTR(s, cut + 1);
        ELSE
            SET scale = scale DIV 2;
        END IF;
    END WHILE;
    SET sound = 1;
    WHILE sound AND moved < 32 DO
        SET sound = 1 - BIT_COUNT(s & SUBSTR(tops, LENGTH(tops) + 1 - moved - LENGTH(s), LENGTH(s))) % 2, moved = moved + 1;
    END WHILE;
END
