CREATE OR REPLACE FUNCTION weir.too_large(topic text, size bigint, most int) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    RAISE 'the event is too large for topic "%": it has % bytes with key, headers and framing, and the limit is %', topic, size, most
    USING ERRCODE = 'WE003',
          HINT = CASE WHEN most < weir.event_most() THEN 'Raise max.message.bytes of the topic, or keep' ELSE 'No topic accepts larger events from SQL: keep' END
                 || ' large values elsewhere and publish where they are.';
END $$;
