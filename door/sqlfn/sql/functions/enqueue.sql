-- enqueue puts a message into a work queue, if the transaction commits. A literal counts as text. delay or at delays the message. If another message that is not done
-- has the same unique key, this one is dropped when the mover moves it.
CREATE OR REPLACE FUNCTION weir.enqueue(
    queue text, value text, key text DEFAULT NULL, headers jsonb DEFAULT '{}',
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, priority int DEFAULT 0, unique_key text DEFAULT NULL
) RETURNS void
LANGUAGE sql
RETURN weir.post_message(queue, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), headers, delay, at, priority, unique_key);

CREATE OR REPLACE FUNCTION weir.enqueue(
    queue text, value jsonb, key text DEFAULT NULL, headers jsonb DEFAULT '{}',
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, priority int DEFAULT 0, unique_key text DEFAULT NULL
) RETURNS void
LANGUAGE sql
RETURN weir.post_message(queue, convert_to(key, 'UTF8'), convert_to(value::text, 'UTF8'), headers, delay, at, priority, unique_key);

CREATE OR REPLACE FUNCTION weir.enqueue(
    queue text, value bytea, key text DEFAULT NULL, headers jsonb DEFAULT '{}',
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, priority int DEFAULT 0, unique_key text DEFAULT NULL
) RETURNS void
LANGUAGE sql
RETURN weir.post_message(queue, convert_to(key, 'UTF8'), value, headers, delay, at, priority, unique_key);
