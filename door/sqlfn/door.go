package sqlfn

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres"
)

//go:embed sql
var sqlFiles embed.FS

// part is what the door keeps in the schema weir.
func part() postgres.Part {
	files, err := fs.Sub(sqlFiles, "sql")
	if err != nil {
		panic(err)
	}
	return postgres.Part{Name: "sqlfn", Files: files}
}

// Door is where SQL sessions come in.
type Door struct {
	store   *postgres.Store
	session *postgres.Session // the mover's
	stirred <-chan struct{}   // receives when there may be something in the inbox
}

// Attach opens the door of a store and brings its tables and functions to the state that this binary needs; nil where the store has no
// SQL sessions. To be called before the store's log runs.
func Attach(ctx context.Context, store eventlog.Store) (*Door, error) {
	sessions, is := store.(*postgres.Store)
	if !is {
		return nil, nil
	}
	if err := sessions.Install(ctx, part()); err != nil {
		return nil, err
	}
	session, err := sessions.Session(lookStatement, moveStatement, carryStatement)
	if err != nil {
		return nil, fmt.Errorf("open the SQL door: %w", err)
	}
	return &Door{store: sessions, session: session, stirred: sessions.Hear("weir_inbox")}, nil
}

func (d *Door) inbox() *inbox { return &inbox{session: d.session, mark: bookmark{done: nothingDone}} }

// Positions tells which events a group handles next in some partitions, by topic and number, whether weir.commit_offset or a key says so: what
// weir.position tells, in one trip. −1: it has committed nothing there.
func (d *Door) Positions(ctx context.Context, group string, topics []eventlog.TopicID, partitions []int32) (offsets []eventlog.Offset, err error) {
	ids := make([]string, len(topics))
	for i, id := range topics {
		ids[i] = id.String()
	}
	err = d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		found, err := conn.Query(ctx, `
			SELECT coalesce((weir.find_position($1, u.topic::uuid, u.partition)).place, -1)
			FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS u(topic, partition, nth)
			ORDER BY u.nth`, group, ids, partitions)
		if err != nil {
			return err
		}
		offsets, err = pgx.CollectRows(found, pgx.RowTo[eventlog.Offset])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %d positions of group %q: %w", len(topics), group, err)
	}
	return offsets, nil
}

// Carried reports whether all that a group committed with weir.commit_offset is where its members look for it: one trip.
func (d *Door) Carried(ctx context.Context, group string) (carried bool, err error) {
	err = d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT weir.all_carried($1)`, group).Scan(&carried)
	})
	if err != nil {
		return false, fmt.Errorf("see whether the positions of group %q are carried: %w", group, err)
	}
	return carried, nil
}
