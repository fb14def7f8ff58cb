-- What the projection made, by run. CommitTx makes each change once, so no row needs a version; but see
-- docs/start-events-postgres.md for a projection that rested for a week.
CREATE TABLE IF NOT EXISTS made (run bigint, account text, balance bigint NOT NULL, PRIMARY KEY (run, account));

-- Which run readers use: the first one from its first event on, others when they take over.
CREATE TABLE IF NOT EXISTS shown (one int PRIMARY KEY CHECK (one = 1), run bigint NOT NULL);
INSERT INTO shown VALUES (1, 1) ON CONFLICT DO NOTHING;

CREATE OR REPLACE VIEW balances AS SELECT account, balance FROM made JOIN shown USING (run);
