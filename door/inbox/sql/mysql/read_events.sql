-- weir_read_events returns events of a partition from an offset on, in the order of their offsets: at most max_events, and about 1 MiB. Only at the end of the
-- partition it returns none. Whoever goes on from next_offset sees each event once: a commit holds the row of weir_partition from where it takes offsets until
-- it ends, so no lower offset is committed after a higher one. next_offset is event_offset + records of the last row; with no rows, the end of the partition or from_offset.
--
-- It only reads, with SELECT … INTO: a SET with a query, or INSERT … SELECT, would lock what it reads until the caller's transaction ends. A temporary table
-- would go to the binary log.
--
-- The layout of a batch, from Kafka's protocol guide, section "Record Batch"; SUBSTR counts from 1:
--
--   1 base offset │ 9 length │ 13 epoch │ 17 magic │ 18 CRC │ 22 attributes │ 24 last delta │ 28 base time │ 36 max time │ 44 … │ 58 count │ 62 records
--   record: size │ attributes 1 │ time − base time │ offset − base offset │ key size, key │ value size, value │ count, headers
CREATE PROCEDURE weir_read_events(IN topic VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN partition_number INT, IN from_offset BIGINT, IN max_events INT, OUT next_offset BIGINT)
    READS SQL DATA
    SQL SECURITY DEFINER
    COMMENT ':version'
BEGIN
    DECLARE about LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE why VARCHAR(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE log_id, low, high BIGINT; -- the partition in the log; still to read are its offsets [low, high)
    DECLARE tries INT DEFAULT 0;

    DECLARE base, event_time_base, event_offset, event_time BIGINT;
    DECLARE batch_records, batch_size, pieces, unread, flags INT; -- pieces: how many were read; unread: how many records of the batch are left
    DECLARE raw, piece LONGBLOB;
    DECLARE sound INT DEFAULT 1;

    DECLARE at, next_at, n, shift BIGINT; -- at: where in raw the next number begins; next_at: where the next record begins
    DECLARE digits BIGINT UNSIGNED;
    DECLARE more INT;
    DECLARE field INT; -- what the number is: 0 size of the record, 1 time, 2 offset, 3 key, 4 value, 5 count of headers, 6 name, 7 value, 8 name, …
    DECLARE key_at, key_size, value_at, value_size, headers INT;
    DECLARE shown, header_name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE object LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; -- the headers

    DECLARE page LONGBLOB DEFAULT '';                                -- the batches in which the events are
    DECLARE places LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT '';       -- and where in page they are, as JSON
    DECLARE found INT DEFAULT 0;
    DECLARE packet INT DEFAULT @@max_allowed_packet - 65536; -- the most bytes of a batch, and of places; a string of more than max_allowed_packet is an error
    DECLARE CONTINUE HANDLER FOR 1300, 1977 SET shown = NULL; -- a header is not UTF-8

    SELECT CONVERT(s.value USING utf8mb4) INTO about FROM weir_state s WHERE s.k = CAST(CONCAT('topic/', topic) AS BINARY);
    SET log_id = JSON_EXTRACT(about, CONCAT('$.partitions[', GREATEST(partition_number, 0), ']')); -- to MySQL -1 is no path; MariaDB counts it from the end
    SET why = CASE
        -- READ UNCOMMITTED shows events that may be rolled back; SERIALIZABLE locks the log.
        WHEN @@:isolation NOT IN ('READ-COMMITTED', 'REPEATABLE-READ') THEN CONCAT('events can be read under READ COMMITTED and REPEATABLE READ; this session has ', @@:isolation)
        WHEN topic IS NULL THEN 'topic is NULL'
        WHEN about IS NULL THEN CONCAT('topic ', QUOTE(LEFT(topic, 60)), ' does not exist: create it with weir topic create')
        WHEN partition_number IS NULL THEN 'partition_number is NULL; CALL weir_partitions(topic) lists the partitions'
        WHEN log_id IS NULL OR partition_number < 0 THEN CONCAT('partition ', partition_number, ' does not exist: the topic has ', JSON_LENGTH(about, '$.partitions'))
        WHEN from_offset IS NULL OR from_offset < 0 THEN CONCAT('from_offset is ', COALESCE(from_offset, 'NULL'), '; offsets begin at 0')
        WHEN max_events IS NULL OR max_events NOT BETWEEN 1 AND 10000 THEN CONCAT('max_events is ', COALESCE(max_events, 'NULL'), '; it must be from 1 to 10000')
    END;
    IF why IS NULL THEN
        SELECT GREATEST(p.first_offset, from_offset), p.next_offset INTO low, high FROM weir_partition p WHERE p.id = log_id;
    END IF;

    batches: WHILE why IS NULL AND low < high AND found < max_events AND (found = 0 OR LENGTH(places) < packet) DO
        SET base = NULL, raw = '', pieces = 0;
        SELECT b.base_offset, b.records, b.size INTO base, batch_records, batch_size
        FROM weir_batch b WHERE b.partition_id = log_id AND b.base_offset <= low ORDER BY b.base_offset DESC LIMIT 1;
        IF found > 0 AND LENGTH(page) + batch_size > 1048576 THEN
            LEAVE batches;
        ELSEIF batch_size > packet THEN
            SET why = CONCAT('the batch at offset ', base, ' has ', batch_size, ' bytes, max_allowed_packet is ', @@max_allowed_packet, ': raise it, or use another door');
            LEAVE batches;
        END IF;
        bytes: WHILE LENGTH(raw) < batch_size DO
            SET piece = NULL;
            SELECT p.bytes INTO piece FROM weir_piece p WHERE p.partition_id = log_id AND p.base_offset = base AND p.nth = pieces;
            IF piece IS NULL THEN
                LEAVE bytes;
            END IF;
            SET raw = CONCAT(raw, piece), pieces = pieces + 1;
        END WHILE;
        :check
        IF base IS NULL OR base + batch_records <= low OR LENGTH(raw) <> batch_size OR sound IS NOT TRUE THEN
            -- READ COMMITTED: it was trimmed or compacted between two statements. Or it is damaged.
            SET tries = tries + 1;
            IF found > 0 THEN
                LEAVE batches;
            ELSEIF tries > 3 THEN
                SET why = CONCAT('the batch of offset ', low, ' is missing, or was changed on disk: run weir doctor, and restore a backup');
            ELSE
                SELECT GREATEST(p.first_offset, low), p.next_offset INTO low, high FROM weir_partition p WHERE p.id = log_id;
            END IF;
            ITERATE batches;
        END IF;
        SET flags = ASCII(SUBSTR(raw, 23, 1));
        IF flags & 32 THEN -- a control batch, which says how a transaction ended: its records are no events
            SET low = base + batch_records;
            ITERATE batches;
        END IF;
        SET unread = CONV(HEX(SUBSTR(raw, 58, 4)), 16, 10), at = 62;
        SET event_time_base = CONV(HEX(SUBSTR(raw, IF(flags & 15, 36, 28), 8)), 16, -10);

        IF flags & 7 THEN -- compressed
            SET event_offset = GREATEST(base, low), next_offset = base + batch_records, unread = 0;
            SET places = CONCAT(places, IF(found, ',[', '['), event_offset, ',', event_time_base, ',0,-1,0,-1,null,', flags & 7, ',', base + batch_records - event_offset, ']');
            SET found = found + 1;
        END IF;
        records: WHILE unread > 0 AND found < max_events DO
            SET field = 0, headers = 0, unread = unread - 1, object = '{}';
            WHILE field < 6 + 2 * headers DO
                SET digits = ASCII(SUBSTR(raw, at, 1)), at = at + 1;
                IF digits >= 128 THEN
                    SET digits = digits & 127, shift = 7;
                    REPEAT
                        SET more = ASCII(SUBSTR(raw, at, 1)), at = at + 1;
                        SET digits = digits | ((more & 127) << shift), shift = shift + 7;
                    UNTIL more < 128 END REPEAT;
                END IF;
                SET n = IF(digits & 1, -1 - CAST(digits >> 1 AS SIGNED), digits >> 1);
                CASE field
                    WHEN 0 THEN
                        SET next_at = at + n, at = at + 1;
                    WHEN 1 THEN
                        SET event_time = IF(flags & 8, event_time_base, event_time_base + n);
                    WHEN 2 THEN
                        SET event_offset = base + n;
                        IF event_offset < low THEN -- trimmed, or not asked for
                            SET at = next_at;
                            ITERATE records;
                        END IF;
                    WHEN 3 THEN
                        SET key_at = at, key_size = n, at = at + GREATEST(n, 0);
                    WHEN 4 THEN
                        SET value_at = at, value_size = n, at = at + GREATEST(n, 0);
                    WHEN 5 THEN
                        -- As JSON that is quoted a byte becomes at most seven: \x01 is \\u0001. MariaDB's JSON_OBJECT fails if its result is larger than the packet,
                        -- and from then on it is NULL to other functions, for as long as the connection lasts.
                        IF n > 1000 OR next_at - at > packet DIV 8 THEN
                            SET object = NULL;
                        ELSE
                            SET headers = n;
                        END IF;
                    ELSE
                        SET shown = NULL;
                        IF n >= 0 THEN
                            SET shown = CONVERT(SUBSTR(raw, at, n) USING utf8mb4); -- it may still have surrogates, which utf16 does not accept
                            SET shown = CONVERT(CONVERT(shown USING utf16) USING utf8mb4);
                            IF shown IS NULL OR LEFT(shown, 2) = '\\x' THEN
                                SET shown = CONCAT('\\x', LOWER(HEX(SUBSTR(raw, at, n))));
                            END IF;
                            SET at = at + n;
                        END IF;
                        IF field & 1 THEN
                            SET object = JSON_MERGE_PRESERVE(object, JSON_OBJECT(header_name, shown)); -- of a name that is repeated it makes an array
                        ELSE
                            SET header_name = shown;
                        END IF;
                END CASE;
                SET field = field + 1;
            END WHILE;
            SET shown = COALESCE(JSON_QUOTE(object), 'null');
            IF found > 0 AND LENGTH(places) + LENGTH(shown) > packet THEN
                SET high = low; -- this event begins the next page
                LEAVE records;
            END IF;
            SET at = next_at, next_offset = event_offset + 1, found = found + 1;
            SET places = CONCAT(places, IF(found > 1, ',[', '['), event_offset, ',', event_time, ',', LENGTH(page) + key_at, ',', key_size, ',', LENGTH(page) + value_at, ',', value_size, ',', shown, ',null,1]');
        END WHILE;
        SET low = base + batch_records;
        IF found > 0 THEN
            SET page = CONCAT(page, raw);
        END IF;
    END WHILE;

    IF why IS NOT NULL THEN
        SET why = LEFT(CONCAT('weir: ', why), 128); -- MESSAGE_TEXT has at most 128 characters
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = why;
    END IF;
    IF found = 0 THEN
        SET next_offset = low;
    END IF;
    SELECT e.event_offset, IF(e.event_time < 0, NULL, e.event_time) AS published_at,
           IF(e.key_size < 0, NULL, SUBSTR(page, e.key_at, e.key_size)) AS event_key,
           IF(e.value_size < 0, NULL, SUBSTR(page, e.value_at, e.value_size)) AS event_value,
           e.headers, ELT(e.codec, 'gzip', 'snappy', 'lz4', 'zstd') AS compression, e.records
    FROM JSON_TABLE(CONCAT('[', places, ']'), '$[*]' COLUMNS (
        event_offset BIGINT PATH '$[0]', event_time BIGINT PATH '$[1]', key_at BIGINT PATH '$[2]', key_size BIGINT PATH '$[3]',
        value_at BIGINT PATH '$[4]', value_size BIGINT PATH '$[5]', headers LONGTEXT CHARACTER SET utf8mb4 PATH '$[6]', codec INT PATH '$[7]', records INT PATH '$[8]')) AS e
    ORDER BY e.event_offset;
END
