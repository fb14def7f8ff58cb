-- The tables of the mailer. This runs at each start, in one transaction. The lock allows several processes to start at the same time.
SELECT pg_advisory_xact_lock(hashtext('mailer'));

CREATE SCHEMA IF NOT EXISTS mailer;

CREATE TABLE IF NOT EXISTS mailer.orders (
    number    text PRIMARY KEY, -- chosen by the client, so that a request can be repeated
    item      text NOT NULL,
    email     text NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);

-- One row for each mail. The queue decides when a mail is tried; this table shows its status.
CREATE TABLE IF NOT EXISTS mailer.mails (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_number text NOT NULL REFERENCES mailer.orders,
    recipient    text NOT NULL,
    subject      text NOT NULL,
    body         text NOT NULL,
    status       text NOT NULL DEFAULT 'scheduled' CHECK (status IN ('scheduled', 'sent', 'failed', 'expired')),
    attempts     int NOT NULL DEFAULT 0,
    error        text, -- why the last attempt failed; NULL when the mail is sent
    changed_at   timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX IF NOT EXISTS mails_order_number ON mailer.mails (order_number);
