-- decode_event returns the event in the value of its key: a batch of one record, uncompressed (use/stream/writer.go). See decode for the layout.
CREATE OR REPLACE FUNCTION weir.decode_event(raw bytea, head text, version bigint) RETURNS weir.stream_event
LANGUAGE plpgsql STABLE
:pinned
AS $$
DECLARE
    e    weir.stream_event;
    at   int := 61;
    size bigint;
    all_ jsonb; -- the headers
BEGIN
    IF octet_length(raw) < 68 OR NOT weir.checksum_fits(raw) THEN
        RAISE 'the event with version % was changed in the store: its checksum does not match: %', version, head
        USING ERRCODE = 'data_corrupted', HINT = 'Run weir doctor, and restore a backup.';
    END IF;
    e.version := version;
    e."time" := weir.time_of(weir.int8_at(raw, 27)); -- of the batch, and so of its first record
    at := at + weir.varint_size(raw, at) + 1;
    at := at + weir.varint_size(raw, at); -- the deltas of time and offset
    at := at + weir.varint_size(raw, at);
    at := at + weir.varint_size(raw, at) + (weir.varint(raw, at) >> 1)::int; -- the stream's name
    size := weir.varint(raw, at);
    at := at + weir.varint_size(raw, at);
    IF size <> 1 THEN -- −1, null
        size := size >> 1;
        e.data := substring(raw FROM at + 1 FOR size::int);
        at := at + size;
    END IF;
    all_ := weir.headers(raw, at, false);
    e.id := weir.header_text(all_ ->> 'weir.event.id');
    e.type := weir.header_text(all_ ->> 'weir.event.type');
    e.subject := weir.header_text(all_ ->> 'weir.event.subject');
    IF all_ ? 'weir.event.subject' THEN
        e.data := NULL; -- it is encrypted
    END IF;
    e.data_text := weir.text_of(e.data);
    IF all_ ? 'weir.event.tag' THEN
        e.tags := ARRAY(
            SELECT weir.header_text(t.tag)
            FROM jsonb_array_elements_text(CASE jsonb_typeof(all_ -> 'weir.event.tag') WHEN 'array' THEN all_ -> 'weir.event.tag' ELSE jsonb_build_array(all_ -> 'weir.event.tag') END)
                WITH ORDINALITY AS t(tag, n) ORDER BY t.n);
    END IF;
    e.metadata := all_ - '{weir.event.id,weir.event.type,weir.stream.version,weir.event.subject,weir.event.key,weir.event.tag,weir.event.tagged}'::text[];
    RETURN e;
END $$;
