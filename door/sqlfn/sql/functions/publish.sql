-- publish: the event exists if the transaction commits, and does not if it rolls back, or back to a savepoint before it. A NULL key is
-- none. Without a partition the key decides, as with Kafka's clients. A literal counts as text, for key and value.
CREATE OR REPLACE FUNCTION weir.publish(topic text, key text, value bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), value, headers, partition, false);

CREATE OR REPLACE FUNCTION weir.publish(topic text, key text, value text, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), headers, partition, false);

CREATE OR REPLACE FUNCTION weir.publish(topic text, key text, value jsonb, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, convert_to(key, 'UTF8'), convert_to(value::text, 'UTF8'), headers, partition, false);

CREATE OR REPLACE FUNCTION weir.publish(topic text, key bytea, value bytea, headers jsonb DEFAULT '{}', partition int DEFAULT NULL) RETURNS void
LANGUAGE sql
RETURN weir.post(topic, key, value, headers, partition, false);
