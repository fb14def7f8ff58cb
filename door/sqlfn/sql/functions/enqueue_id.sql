-- enqueue_id puts a message into a work queue, as weir.enqueue does, and returns the message's id. weir.message_state says what became of it.
CREATE OR REPLACE FUNCTION weir.enqueue_id(
    queue text, value text, key text DEFAULT NULL, headers jsonb DEFAULT '{}',
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, priority int DEFAULT 0, unique_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.post_message_id(queue, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), headers, delay, at, priority, unique_key);

CREATE OR REPLACE FUNCTION weir.enqueue_id(
    queue text, value jsonb, key text DEFAULT NULL, headers jsonb DEFAULT '{}',
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, priority int DEFAULT 0, unique_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.post_message_id(queue, convert_to(key, 'UTF8'), convert_to(value::text, 'UTF8'), headers, delay, at, priority, unique_key);

CREATE OR REPLACE FUNCTION weir.enqueue_id(
    queue text, value bytea, key text DEFAULT NULL, headers jsonb DEFAULT '{}',
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, priority int DEFAULT 0, unique_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.post_message_id(queue, convert_to(key, 'UTF8'), value, headers, delay, at, priority, unique_key);
