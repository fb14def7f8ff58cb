-- event is a row of weir.events and weir.last_events.
CREATE TYPE weir.event AS (
    partition   int,
    "offset"    bigint,
    "timestamp" timestamptz, -- NULL if the record has none
    key         bytea,
    key_text    text,        -- NULL if the key is not UTF-8, or has a zero byte
    value       bytea,
    value_text  text,
    headers     jsonb,       -- see weir.headers
    compression text,        -- the codec, if a client compressed the batch; key, value and headers are then NULL,
    records     int          -- and this is the number of records in the batch; otherwise 1
);
