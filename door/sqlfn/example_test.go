package sqlfn_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// What docs/sql.md shows of consuming exactly once, typed in: it skips nothing where fewer events
// are there than it asks for.
func TestTheExampleOfConsumingExactlyOnce(t *testing.T) {
	doc, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "## Consuming exactly once")
	_, text, _ = strings.Cut(text, "BEGIN;\n")
	example, _, found := strings.Cut(text, "COMMIT;\n")
	if !found || !strings.Contains(example, "1200") {
		t.Fatalf("the example is not where it was: %q", example)
	}
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	conn := connect(t, address)
	exec(t, conn, `CREATE TABLE invoice (number int PRIMARY KEY)`)
	published := 0
	for _, n := range []int{50, 0, 120, 7} {
		exec(t, conn, `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT jsonb_build_object('id', g) FROM generate_series($1::int, $2::int) AS g))`, published+1, published+n)
		published += n
		p.read("orders", published)
		for {
			at := max(0, position(t, conn, "billing"))
			if at == int64(published) {
				break
			}
			exec(t, conn, `BEGIN`)
			exec(t, conn, strings.ReplaceAll(example, "1200", fmt.Sprint(at)))
			exec(t, conn, `COMMIT`)
			if next := position(t, conn, "billing"); next <= at || next > at+100 {
				t.Fatalf("the group was at %d, and is at %d of %d", at, next, published)
			}
		}
		exec(t, conn, `BEGIN`)
		exec(t, conn, strings.ReplaceAll(example, "1200", fmt.Sprint(published))) // there is nothing more
		exec(t, conn, `COMMIT`)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM invoice`); got != fmt.Sprint(published) {
		t.Errorf("%s invoices for %d orders", got, published)
	}
}
