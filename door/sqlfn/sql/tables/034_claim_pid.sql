-- A session has one request for a claim (functions/request_claim.sql). This finds it.
CREATE INDEX claim_request_pid ON weir.claim_request (pid);
