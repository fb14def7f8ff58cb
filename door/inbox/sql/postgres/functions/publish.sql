-- publish publishes an event if the transaction commits, and not if it rolls back, completely or to a savepoint before the call. With a NULL key the event
-- has no key. Without partition the key determines it, as in Kafka's clients. A literal counts as text, for key and value.
--
-- These are the functions that door/sqlfn has on a database that is not a shard.
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
