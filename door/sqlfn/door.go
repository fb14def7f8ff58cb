package sqlfn

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

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
