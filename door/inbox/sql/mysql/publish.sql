-- weir_publish publishes an event in the caller's transaction.
CREATE PROCEDURE weir_publish(IN topic VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN event_key LONGBLOB, IN event_value LONGBLOB)
    SQL SECURITY DEFINER
    COMMENT ':version'
BEGIN
    CALL weir_publish_event(topic, event_key, event_value, NULL, NULL);
END
