package sqlfn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres/wire"
)

// A process of a version whose commits were not checked against the store's incarnation goes on
// after its schema was upgraded. These are its statements, with its parameters: as they were,
// binary and of no declared type.
func TestAnOlderWeirIsRefusedAndChangesNothing(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	conn := session(t, address)
	run(t, conn, tell("mine"))
	in.expect("mine")
	none, text := wire.Int4Array([]int32{}), wire.TextArray(nil)
	longs := wire.Int8Array([]int64{})
	entry := [][]byte{
		wire.Int8Array([]int64{1}), text,
		wire.Int4Array([]int32{1}), wire.Int8Array([]int64{1}), wire.Int4Array([]int32{1}), wire.Int8Array([]int64{1}), wire.Int4Array([]int32{0}), wire.Int4Array([]int32{5}),
		none, text, longs,
		none, text, longs, none, none, none, []byte("batch"),
	}
	ids := wire.Int8Array([]int64{in.chunk.rows[0].id})
	for name, args := range map[string][][]byte{
		"bases, stale, homeless FROM weir.commit": entry,
		"moved, bases FROM weir.move":             slices.Concat([][]byte{ids}, entry),
		"moved FROM weir.carry":                   slices.Concat([][]byte{ids, text, longs}, entry),
	} {
		var places []string
		for n := range args {
			places = append(places, fmt.Sprintf("$%d", n+1))
		}
		statement := "SELECT " + name + "(" + strings.Join(places, ", ") + ")"
		result := conn.PgConn().ExecParams(t.Context(), statement, args, nil, slices.Repeat([]int16{1}, len(args)), []int16{1}).Read()
		var refused *pgconn.PgError
		if !errors.As(result.Err, &refused) || !slices.Contains([]string{"42883", "42804"}, refused.Code) {
			t.Errorf("%s: %v, want an error of the function's parameters", statement, result.Err)
		}
		t.Log(result.Err)
	}
	if got := pgtest.Value(t, address, `SELECT format('%s %s', (SELECT next_offset FROM weir.newest WHERE id = 1), (SELECT count(*) FROM weir.inbox))`); got != "0 1" {
		t.Errorf("the partition's end and the rows of the inbox are %s, want 0 1", got)
	}
}

// A process of the version that knew no held keys could append to a stream that a transaction
// holds: its commits are refused. What its mover moves is moved as before.
func TestAWeirThatKnowsNoHeldKeysCommitsNothing(t *testing.T) {
	address := pgtest.URL(t)
	openInbox(t, address)
	conn := session(t, address)
	_, err := conn.Exec(t.Context(), `SELECT bases, stale, homeless
		FROM weir.commit('{}', '{k}', '{}', '{}', '{}', '{}', '{}', '{}', '{1}', '{1}', '{0}', '{1}', '{1}', '{7}', '{0}', '{1}', '{0}', 'v')`)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "42883" {
		t.Errorf("a commit without the argument for held keys: %v, want 42883", err)
	}
	run(t, conn, `SELECT moved, bases FROM weir.move('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '')`)
}
