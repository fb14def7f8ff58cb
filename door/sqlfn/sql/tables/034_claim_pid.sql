-- A session has at most one claim request (functions/request_claim.sql). This index finds it.
CREATE INDEX claim_request_pid ON weir.claim_request (pid);
