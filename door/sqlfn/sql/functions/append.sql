-- append appends an event to an event-sourced stream, if the transaction commits and the stream is as expected: a version, or none, exists or any. It returns the
-- stream's version after the event. A literal counts as text.
--
-- See append_events.
CREATE OR REPLACE FUNCTION weir.append(
    category text, stream text, expected bigint, type text, data text, metadata jsonb DEFAULT '{}', id text DEFAULT NULL, at timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.append_events(category, stream, expected::text, ARRAY[type], ARRAY[convert_to(data, 'UTF8')], ARRAY[metadata], ARRAY[id], ARRAY[at]);

CREATE OR REPLACE FUNCTION weir.append(
    category text, stream text, expected bigint, type text, data jsonb, metadata jsonb DEFAULT '{}', id text DEFAULT NULL, at timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.append_events(category, stream, expected::text, ARRAY[type], ARRAY[convert_to(data::text, 'UTF8')], ARRAY[metadata], ARRAY[id], ARRAY[at]);

CREATE OR REPLACE FUNCTION weir.append(
    category text, stream text, expected bigint, type text, data bytea, metadata jsonb DEFAULT '{}', id text DEFAULT NULL, at timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.append_events(category, stream, expected::text, ARRAY[type], ARRAY[data], ARRAY[metadata], ARRAY[id], ARRAY[at]);

CREATE OR REPLACE FUNCTION weir.append(
    category text, stream text, expected text, type text, data text, metadata jsonb DEFAULT '{}', id text DEFAULT NULL, at timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.append_events(category, stream, expected, ARRAY[type], ARRAY[convert_to(data, 'UTF8')], ARRAY[metadata], ARRAY[id], ARRAY[at]);

CREATE OR REPLACE FUNCTION weir.append(
    category text, stream text, expected text, type text, data jsonb, metadata jsonb DEFAULT '{}', id text DEFAULT NULL, at timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.append_events(category, stream, expected, ARRAY[type], ARRAY[convert_to(data::text, 'UTF8')], ARRAY[metadata], ARRAY[id], ARRAY[at]);

CREATE OR REPLACE FUNCTION weir.append(
    category text, stream text, expected text, type text, data bytea, metadata jsonb DEFAULT '{}', id text DEFAULT NULL, at timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
RETURN weir.append_events(category, stream, expected, ARRAY[type], ARRAY[data], ARRAY[metadata], ARRAY[id], ARRAY[at]);
