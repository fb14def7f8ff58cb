-- What the projection made, by run; version is that of the last event in the row.
CREATE TABLE IF NOT EXISTS made (
    run     INTEGER NOT NULL,
    account TEXT    NOT NULL,
    balance INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (run, account)
);

-- Which run readers use: the first one from its first event on, others when they take over.
CREATE TABLE IF NOT EXISTS shown (one INTEGER PRIMARY KEY CHECK (one = 1), run INTEGER NOT NULL);
INSERT OR IGNORE INTO shown VALUES (1, 1);

CREATE VIEW IF NOT EXISTS balances AS SELECT account, balance FROM made JOIN shown USING (run);
