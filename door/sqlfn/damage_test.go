package sqlfn_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/internal/pgtest"
)

// SQL passes over no batch that is missing, nor over one of which a piece is: it says which, and where to read on.
func TestSQLReadersHearOfMissingBatches(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	for n := range 6 {
		pgtest.Exec(t, address, fmt.Sprintf(`SELECT weir.publish('orders', 'k', repeat('%d', 20000))`, n))
		p.read("orders", n+1) // so that each is a batch
	}
	pgtest.Exec(t, address, `
		DELETE FROM weir.batch WHERE base_offset = 1 AND piece = 1 AND partition_id <> 0;
		DELETE FROM weir.batch WHERE base_offset IN (3, 5) AND partition_id <> 0`)
	conn := connect(t, address)
	for _, c := range []struct {
		from       int
		says, hint string // "": it is read
	}{
		{0, "batch 1 of partition", "or read from offset 2 on"},
		{1, "batch 1 of partition", "or read from offset 2 on"},
		{2, "no batch for offsets 3 to 3", "or read from offset 4 on"},
		{3, "no batch for offsets 3 to 3", "or read from offset 4 on"},
		{4, "no batch for offsets 5 to 5", "or read from offset 6 on"},
		{5, "no batch for offsets 5 to 5", "or read from offset 6 on"},
		{6, "", ""},
	} {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`SELECT count(*) FROM weir.events('orders', %d)`, c.from))
		var refused *pgconn.PgError
		switch {
		case c.says == "" && err != nil:
			t.Errorf("from %d: %v", c.from, err)
		case c.says != "" && (!errors.As(err, &refused) || refused.Code != "XX001" || !strings.Contains(refused.Message, c.says) || !strings.Contains(refused.Hint, c.hint)):
			t.Errorf("from %d: %+v, want an error that says %q and %q", c.from, err, c.says, c.hint)
		}
	}
}

// All batches lie in one stretch of what SQL reads at once.
func TestSQLReadersGetWhatIsBeforeTheDamage(t *testing.T) {
	for name, damage := range map[string]string{
		"a batch is missing": `DELETE FROM weir.batch WHERE base_offset = 3 AND partition_id <> 0`,
		"a piece is missing": `DELETE FROM weir.batch WHERE base_offset = 3 AND piece = 1 AND partition_id <> 0`,
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			p := start(t, address)
			p.create("orders", 1, nil)
			for n := range 5 {
				pgtest.Exec(t, address, fmt.Sprintf(`SELECT weir.publish('orders', 'k', repeat('%d', 20000))`, n))
				p.read("orders", n+1) // so that each is a batch
			}
			pgtest.Exec(t, address, damage)
			conn := connect(t, address)
			for from := range 4 {
				rows, err := conn.Query(t.Context(), `SELECT "offset" FROM weir.events('orders', $1)`, from)
				if err != nil {
					t.Fatal(err)
				}
				var got []int
				for rows.Next() {
					var offset int
					if err := rows.Scan(&offset); err != nil {
						t.Fatal(err)
					}
					got = append(got, offset)
				}
				var refused *pgconn.PgError
				if want := []int{0, 1, 2}[from:]; !slices.Equal(got, want) {
					t.Errorf("from %d came %v before the error, want %v", from, got, want)
				}
				if err := rows.Err(); !errors.As(err, &refused) || refused.Code != "XX001" || !strings.Contains(refused.Hint, "read from offset 4 on") {
					t.Errorf("from %d: %+v, want an error that says where to read on", from, err)
				}
			}
			var count int
			if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM weir.events('orders', 0, 0, 3)`).Scan(&count); err != nil || count != 3 {
				t.Errorf("the three before the damage: %d came (%v)", count, err)
			}
		})
	}
}

// A byte that changed on the disk reaches no SQL reader where the server can compute checksums, which is from PostgreSQL 18 on: make versions.
func TestSQLReadersHearOfChangedBatches(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	for n := range 3 {
		pgtest.Exec(t, address, fmt.Sprintf(`SELECT weir.publish('orders', 'k', 'amount %d')`, n))
		p.read("orders", n+1) // so that each is a batch
	}
	conn := connect(t, address)
	if _, err := conn.Exec(t.Context(), `SELECT count(*) FROM weir.events('orders')`); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, `UPDATE weir.batch SET bytes = set_byte(bytes, octet_length(bytes) - 2, ascii('9')) WHERE base_offset = 1 AND partition_id <> 0`)
	_, err := conn.Exec(t.Context(), `SELECT count(*) FROM weir.events('orders', 1)`)
	var refused *pgconn.PgError
	switch version := pgtest.Value(t, address, `SELECT current_setting('server_version_num')::int / 10000`); {
	case len(version) == 2 && version < "18":
		if err != nil {
			t.Errorf("PostgreSQL %s cannot compute checksums, and says %v", version, err)
		}
	case !errors.As(err, &refused) || refused.Code != "XX001" || !strings.Contains(refused.Message, "batch 1 of partition") || !strings.Contains(refused.Hint, "read from offset 2 on"):
		t.Errorf("PostgreSQL %s: %+v, want an error that names the batch and says where to read on", version, err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT count(*) FROM weir.events('orders', 2)`); err != nil {
		t.Errorf("what is behind the changed batch: %v", err)
	}
}
