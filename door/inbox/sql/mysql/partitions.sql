-- weir_partitions lists the partitions of a topic, or of all topics (NULL).
CREATE PROCEDURE weir_partitions(IN topic VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    READS SQL DATA
    SQL SECURITY DEFINER
    COMMENT ':version'
BEGIN
    SELECT CONVERT(SUBSTR(s.k, 7) USING utf8mb4) AS topic, j.nth - 1 AS partition_number, p.first_offset, p.next_offset,
           p.next_byte - p.first_byte - p.removed AS bytes
    FROM weir_state s
    JOIN JSON_TABLE(CONVERT(s.value USING utf8mb4), '$.partitions[*]' COLUMNS (nth FOR ORDINALITY, id BIGINT PATH '$')) AS j
    JOIN weir_partition p ON p.id = j.id
    WHERE s.k >= 'topic/' AND s.k < 'topic0' AND (topic IS NULL OR s.k = CAST(CONCAT('topic/', topic) AS BINARY)) -- 0 comes after /
    ORDER BY s.k, j.nth;
END
