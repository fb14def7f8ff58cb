package sqlfn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
	"github.com/weir-log/weir/use/queue"
)

// enqueuedRun is messages with ids that follow each other, and that a move puts at offsets that
// follow each other. Their callers have the ids (weir.enqueue_id), so the move writes where they
// are into the table weir.enqueued.
type enqueuedRun struct {
	first, last int64 // ids in the inbox
	queue.Going       // of the first one
	due         time.Time
}

// addRun adds a message to the runs of a move.
func addRun(runs []enqueuedRun, id int64, to queue.Going, due time.Time) []enqueuedRun {
	if n := len(runs); n > 0 && due.IsZero() {
		r := &runs[n-1]
		if r.due.IsZero() && r.Batch == to.Batch && r.last+1 == id && r.Record+int(id-r.first) == to.Record {
			r.last = id
			return runs
		}
	}
	return append(runs, enqueuedRun{id, id, to, due})
}

// runParams are the runs of a move of e as parameters of moveStatement.
func runParams(runs []enqueuedRun, e eventlog.Entry) [][]byte {
	n := len(runs)
	firsts, lasts, partitions, batches, offsets, dues := make([]int64, n), make([]int64, n), make([]int64, n), make([]int32, n), make([]int64, n), make([]int64, n)
	for i, r := range runs {
		firsts[i], lasts[i] = r.first, r.last
		if r.Batch >= 0 {
			partitions[i], batches[i], offsets[i] = int64(e.Batches[r.Batch].Partition), int32(r.Batch+1), int64(r.Record)
		} else {
			partitions[i], offsets[i] = int64(r.At.Partition), int64(r.At.Offset)
		}
		if !r.due.IsZero() {
			dues[i] = r.due.UnixMilli()
		}
	}
	return [][]byte{wire.Int8Array(firsts), wire.Int8Array(lasts), wire.Int8Array(partitions), wire.Int4Array(batches), wire.Int8Array(offsets), wire.Int8Array(dues)}
}

// Enqueued says where the message is that a transaction enqueued under an id (weir.enqueue_id): one
// statement. waits: it is still in the inbox, on its way to one of the topics. There is no such
// message if found is false: its transaction is open or was rolled back, its queue was deleted, or
// its place was forgotten, because its records were deleted.
func (d *Door) Enqueued(ctx context.Context, topics []eventlog.TopicID, id int64) (at queue.MessageID, waits, found bool, err error) {
	err = d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		ids := make([]string, len(topics))
		for i, t := range topics {
			ids[i] = t.String()
		}
		at, waits, found = queue.MessageID{}, false, true
		err := conn.QueryRow(ctx, `
			SELECT true, 0, 0 FROM weir.inbox AS i
			WHERE i.id = $1 AND weir.is_for(i.topic, $2::text[]::uuid[]) AND i.grp IS NULL AND i.base IS NOT NULL
			UNION ALL
			(SELECT false, e.partition, e."offset" + ($1 - e.first)
			 FROM (SELECT * FROM weir.enqueued WHERE first <= $1 ORDER BY first DESC LIMIT 1) AS e WHERE $1 <= e.last)`,
			id, ids).Scan(&waits, &at.Partition, &at.Offset)
		if errors.Is(err, pgx.ErrNoRows) {
			found, err = false, nil
		}
		return err
	})
	if err != nil {
		return at, false, false, fmt.Errorf("find the message that was enqueued by SQL with the id %d: %w", id, err)
	}
	return at, waits, found, nil
}

// forgetEnqueued removes rows of weir.enqueued, in one trip: the places of messages whose records
// are deleted. most bounds how many. It returns how many it removed.
func (i *inbox) forgetEnqueued(ctx context.Context, most int) (n int, err error) {
	err = i.session.Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT weir.forget_enqueued($1)`, most).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("delete the places of messages whose records are deleted: %w", err)
	}
	return n, nil
}
