-- post_creation asks weir to create something, if the transaction commits; see tables/051_creation.sql. It returns the request's id.
CREATE OR REPLACE FUNCTION weir.post_creation(kind text, name text, spec jsonb) RETURNS bigint
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    me      xid8 := pg_current_xact_id(); -- before the row's id, see weir.look
    request bigint;
BEGIN
    spec := jsonb_strip_nulls(spec);
    INSERT INTO weir.creation (kind, name, spec) VALUES (post_creation.kind, post_creation.name, post_creation.spec) RETURNING id INTO request;
    INSERT INTO weir.inbox (xact, topic, headers, size)
    VALUES (me, '00000000-0000-0000-0000-000000000000',
            jsonb_build_object('weir.create', jsonb_build_object('id', request, 'kind', kind, 'name', name, 'spec', spec,
                'by', jsonb_build_object('role', session_user, 'address', coalesce(host(inet_client_addr()), 'local')))), 600 + octet_length(spec::text));
    PERFORM weir.notify_mover();
    RETURN request;
END $$;
