-- pool has a row for each pool of connections through which a weir reaches the database, as that weir saw it
-- last. A pooler in transaction mode gives a session a connection for a whole CALL. So if many sessions of the
-- pool wait for claims, weir gets no connection to answer them (functions/request_claim.sql).
CREATE UNLOGGED TABLE weir.pool (
    role    name        NOT NULL,
    address text        NOT NULL, -- of the pooler; '': a socket
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (role, address)
);

-- From where a request came.
ALTER TABLE weir.claim_request ADD COLUMN address text NOT NULL DEFAULT coalesce(host(inet_client_addr()), '');
