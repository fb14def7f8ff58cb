-- tombstone publishes an event without a value, which marks the key as deleted.
CREATE OR REPLACE FUNCTION weir.tombstone(topic text, key text, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), NULL, headers, partition, true);

CREATE OR REPLACE FUNCTION weir.tombstone(topic text, key bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, key, NULL, headers, partition, true);
