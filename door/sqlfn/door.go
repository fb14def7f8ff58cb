package sqlfn

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres"
)

//go:embed sql
var sqlFiles embed.FS

// part is the door's tables and functions in the schema weir.
func part() postgres.Part {
	files, err := fs.Sub(sqlFiles, "sql")
	if err != nil {
		panic(err)
	}
	return postgres.Part{Name: "sqlfn", Files: files, Public: public}
}

// public names the functions and views for sessions, which docs/sql.md describes. All others in the
// schema are weir's own.
var public = []string{
	"publish", "publish_all", "tombstone", "enqueue", "enqueue_all", "enqueue_id", "enqueue_all_ids", "message_state", "append", "append_all",
	"claim", "ack", "nack", "extend", "commit_offset", "commit_offset_by_id", "position",
	"events", "last_events", "stream", "state_at", "grant_to",
	"create_topic", "create_queue", "create_category", "creations",
	"topics", "partitions", "groups", "queues", "messages", "streams", "projections",
}

// Door serves SQL sessions: its functions and tables, and the mover's session.
type Door struct {
	store   *postgres.Store
	session *postgres.Session // the mover's
	stirred <-chan struct{}   // receives when there may be something in the inbox
	asked   <-chan struct{}   // receives when there may be a request for a claim
}

// Attach opens the door of a store, and installs the tables and functions that this binary needs;
// nil if the store has no SQL sessions. Call it before the store's log runs.
func Attach(ctx context.Context, store eventlog.Store) (*Door, error) {
	sessions, is := eventlog.As[*postgres.Store](store)
	if !is {
		return nil, nil
	}
	if err := sessions.Install(ctx, part()); err != nil {
		return nil, err
	}
	// If the triggers cannot be created now, acks are not durable until the next start if their
	// transactions turn off synchronous_commit after weir.ack.
	if err := sessions.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `SELECT weir.add_triggers()`)
		return err
	}); err != nil {
		return nil, fmt.Errorf("open the SQL door: %w", err)
	}
	session, err := sessions.Session(pollStatement, moveStatement, carryStatement, moveAppendedStatement)
	if err != nil {
		return nil, fmt.Errorf("open the SQL door: %w", err)
	}
	return &Door{store: sessions, session: session, stirred: sessions.Hear("weir_inbox"), asked: sessions.Hear("weir_claim")}, nil
}

func (d *Door) inbox() *inbox {
	return &inbox{session: d.session, most: pollRows, span: pollSpan, mark: bookmark{done: nothingDone}}
}
