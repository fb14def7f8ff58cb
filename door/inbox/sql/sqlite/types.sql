-- SQLite keeps values of other types than a column's. A number as key or value is published as its text; a partition and a time must be whole numbers.
CREATE TRIGGER IF NOT EXISTS weir_inbox_types BEFORE INSERT ON weir_inbox
BEGIN
    SELECT CASE
        WHEN typeof(NEW.partition_number) NOT IN ('null', 'integer') THEN RAISE(ABORT, 'weir: partition_number must be a whole number or NULL')
        WHEN typeof(NEW.published_at) <> 'integer' OR NEW.published_at NOT BETWEEN -1 AND 253402300799999 -- -1: unknown; the end of the year 9999
            THEN RAISE(ABORT, 'weir: published_at must be the milliseconds since the Unix epoch, as a whole number')
    END;
END
