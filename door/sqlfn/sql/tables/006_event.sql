-- event is a row of weir.events and weir.last_events.
CREATE TYPE weir.event AS (
    partition   int,
    "offset"    bigint,
    "timestamp" timestamptz, -- NULL where the record has none
    key         bytea,
    key_text    text,        -- NULL where the key is not UTF-8, or holds a zero byte
    value       bytea,
    value_text  text,
    headers     jsonb,       -- see weir.headers
    compression text,        -- the codec, where a client compressed the batch: key, value and headers are then NULL,
    records     int          -- and this is how many records the row stands for; else 1
);
