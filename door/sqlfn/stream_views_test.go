package sqlfn_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/stream"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf returns the rows of a SELECT as a role gets them, one a line.
func rowsOf(t *testing.T, address, role, sql string) string {
	t.Helper()
	rows, err := connect(t, login(t, address, role)).Query(t.Context(), `SELECT x::text FROM (`+sql+`) AS x`)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if rows.Err() != nil {
		t.Fatalf("%s: %v", sql, rows.Err())
	}
	return strings.Join(lines, " ")
}

func TestViewsShowStreamsAndWhatSQLHasAppendedToThem(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	p, c := startStreams(t, address, false)
	other, err := stream.New(p.log, stream.Config{}).CreateCategory(t.Context(), stream.Spec{Name: "order"})
	check(t, err)
	for n, name := range []string{"a", "b", "c/%ü", "old"} {
		for range n + 1 {
			_, err := c.Append(t.Context(), name, stream.Any, stream.NewEvent{Type: "T"})
			check(t, err)
		}
	}
	_, err = other.Append(t.Context(), "a", stream.Any, stream.NewEvent{Type: "T"})
	check(t, err)
	_, err = c.Delete(t.Context(), "b", stream.Any)
	check(t, err)
	check(t, c.Archive(t.Context(), "old", stream.Any))
	conn := connect(t, address)
	bySQL(t, conn, `append('account', 'a', 1, 'T', 'v')`)
	bySQL(t, conn, `append('account', 'b', 'none', 'T', 'v')`)
	bySQL(t, conn, `append_all('account', 'new', 'none', ARRAY['T', 'T'], ARRAY['v', 'w'])`)

	const shown = `SELECT * FROM weir.streams ORDER BY category, stream COLLATE "C"`
	want := `(account,a,2,0,f,f) (account,b,3,2,f,f) (account,c/%ü,3,0,f,f) (account,new,2,0,f,f) (account,old,4,0,f,t) (order,a,1,0,f,f)`
	if got := rowsOf(t, address, "weir_reader", shown); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	_, err = c.Delete(t.Context(), "c/%ü", stream.Any)
	check(t, err)
	if got, want := rowsOf(t, address, "weir_consumer", `SELECT * FROM weir.streams WHERE category = 'account' AND stream = 'c/%ü'`), `(account,c/%ü,3,3,t,f)`; got != want {
		t.Errorf("a deleted stream: %s, want %s", got, want)
	}
	check(t, p.log.DeleteTopic(t.Context(), "order"))
	if got := rowsOf(t, address, "weir_reader", `SELECT * FROM weir.streams WHERE category = 'order'`); got != "" {
		t.Errorf("of a deleted category: %s", got)
	}
}

func TestViewsShowEachRunOfAProjection(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	p, _ := startStreams(t, address, false)
	streams := stream.New(p.log, stream.Config{})
	all, err := streams.EnsureProjection(t.Context(), "all", 0, nil)
	check(t, err)
	some, err := streams.EnsureProjection(t.Context(), "some/%", 2, []string{"account", "order"})
	check(t, err)
	beside, err := streams.RebuildProjection(t.Context(), "some/%")
	check(t, err)
	_, err = streams.PauseProjection(t.Context(), "all")
	check(t, err)

	want := fmt.Sprintf(`(all,1,0,{},t,t,%s) (some/%%,1,2,"{account,order}",t,f,%s) (some/%%,2,2,"{account,order}",f,f,%s)`, all.Run.Group, some.Run.Group, beside.Next.Group)
	if got := rowsOf(t, address, "weir_reader", `SELECT * FROM weir.projections ORDER BY projection, run`); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
