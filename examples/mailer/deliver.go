package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
)

const (
	queue       = "mails" // a message is the id of a mail
	sendAtOnce  = 8
	writeWithin = 10 * time.Second // for a change of a mail's row
	// Once the SMTP server has taken a mail, markSent tries writeTries times to write that, with
	// writePause in between. If it cannot, the mail may be sent again.
	writeTries = 20
	writePause = 500 * time.Millisecond
)

// work starts to send mails, and to note those that the queue gives up. stop takes no more
// messages, and waits for the mails that are being sent.
func (m *mailer) work(ctx context.Context, s settings) (stop func(context.Context) error, err error) {
	stop = func(context.Context) error { return nil }
	err = m.log.CreateQueue(ctx, weir.Queue{Name: queue, Settings: s.queue})
	if errors.Is(err, weir.ErrQueueExists) {
		err = m.log.AlterQueue(ctx, queue, func(is *weir.QueueSettings) error {
			paused := is.Paused // by an operator, who may have had a reason
			*is = s.queue
			is.Paused = paused
			return nil
		})
	}
	if err != nil {
		return stop, err
	}
	worker, err := m.log.Work(ctx, weir.WorkOptions{Queue: queue, Concurrency: sendAtOnce, Handler: m.deliver})
	if err != nil {
		return stop, err
	}
	_, err = m.log.Consume(ctx, weir.Subscription{Group: "mailer", Topics: []string{weir.DeadLetterTopic(queue)}, Session: s.session,
		Handler: m.giveUp, Retry: weir.Retry{Attempts: -1}}) // for ever: giveUp fails only if the database does, or if another process has taken over the partition
	return worker.Close, err
}

// deliver sends the mail of a message.
func (m *mailer) deliver(ctx context.Context, j weir.Job) error {
	id, err := strconv.ParseInt(string(j.Value), 10, 64)
	if err != nil {
		return weir.Permanent(fmt.Errorf("the message is not the id of a mail: %w", err))
	}
	toSend := mail{id: id}
	err = m.pool.QueryRow(ctx, `SELECT recipient, subject, body FROM mailer.mails WHERE id = $1`, id).Scan(&toSend.recipient, &toSend.subject, &toSend.body)
	if errors.Is(err, pgx.ErrNoRows) {
		return weir.Permanent(fmt.Errorf("mail %d does not exist", id))
	}
	if err != nil {
		return fmt.Errorf("read mail %d: %w", id, err)
	}
	hangUp, err := m.send(ctx, toSend)
	defer hangUp()
	if err != nil {
		slog.Warn("a mail was not sent", "mail", id, "attempt", j.Attempt, "err", err)
		m.note(ctx, id, j.Attempt, err)
		return err
	}
	return m.markSent(ctx, j, id)
}

// markSent writes that a mail was sent, in the transaction that acknowledges its message. The SMTP
// server has the mail by now, and would get it again if this were not written. So the transaction
// is repeated, up to writeTries times, unless the claim is lost or ctx ends.
func (m *mailer) markSent(ctx context.Context, j weir.Job, id int64) error {
	for try := 1; ; try++ {
		err := m.write(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE mailer.mails SET status = 'sent', attempts = $2, error = NULL, changed_at = now() WHERE id = $1`, id, j.Attempt); err != nil {
				return err
			}
			return j.AckTx(ctx, tx)
		})
		if err == nil {
			slog.Info("a mail was sent", "mail", id, "attempt", j.Attempt)
			return nil
		}
		err = fmt.Errorf("mail %d was sent, but its status could not be written; it may be sent again: %w", id, err)
		slog.Warn("a mail was sent, but its status could not be written", "mail", id, "attempt", j.Attempt, "try", try, "err", err)
		if errors.Is(err, weir.ErrClaimLost) || try == writeTries {
			return err
		}
		select {
		case <-time.After(writePause):
		case <-ctx.Done():
			return err
		}
	}
}

// note writes why an attempt failed. That is for people: what becomes of the mail does not depend
// on whether it could be written.
func (m *mailer) note(ctx context.Context, id int64, attempt int, failed error) {
	err := m.write(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE mailer.mails SET attempts = $2, error = $3, changed_at = now() WHERE id = $1 AND status = 'scheduled'`, id, attempt, text(failed.Error()))
		return err
	})
	if err != nil {
		slog.Warn("the reason why a mail was not sent could not be written", "mail", id, "err", err)
	}
}

// giveUp handles a dead letter: it writes that the queue gave a mail up, in the transaction that
// commits the letter's offset. A mail that was put back into the queue meanwhile, and sent, stays
// so.
func (m *mailer) giveUp(ctx context.Context, e weir.Event) error {
	header := func(name string) string {
		value, _ := e.Header("weir.queue." + name)
		return text(string(value))
	}
	id, err := strconv.ParseInt(string(e.Value), 10, 64)
	if err != nil {
		slog.Warn("a dead letter is not the id of a mail", "letter", e.Offset, "err", err)
		return nil
	}
	attempts, _ := strconv.Atoi(header("attempts"))
	status, reason := "failed", header("error")
	if header("reason") == "expired" {
		status = "expired"
	}
	err = m.write(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			UPDATE mailer.mails
			SET status = $2, attempts = $3, changed_at = now(), error = $4
			WHERE id = $1 AND status <> 'sent'`, id, status, attempts, reason); err != nil {
			return err
		}
		return e.CommitTx(ctx, tx)
	})
	if err == nil {
		slog.Warn("a mail was given up", "mail", id, "status", status, "attempts", attempts, "reason", reason)
	}
	return err
}

// write runs a transaction, also when ctx has ended: what is to be written has happened.
func (m *mailer) write(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeWithin)
	defer cancel()
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return do(ctx, tx) })
}

// text makes a string fit for a text column of PostgreSQL: it removes zero bytes, and replaces what
// is not UTF-8.
func text(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}
