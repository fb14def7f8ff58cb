package sqlfn_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	mathrand "math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/internal/pgtest"
)

// SQL passes over no batch that is missing, nor over one of which a piece is: it says which, and
// where to read on.
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

// A byte that changed on the disk reaches no SQL reader, whatever the server's version.
func TestSQLReadersHearOfChangedBatches(t *testing.T) {
	for name, value := range map[string]string{"a small batch": `'amount'`, "a batch of several pieces": `repeat('amount', 5000)`} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			p := start(t, address)
			p.create("orders", 2, nil)
			pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'other', NULL, 0)`)
			p.read("orders", 1)
			for n := range 3 {
				pgtest.Exec(t, address, fmt.Sprintf(`SELECT weir.publish('orders', 'k', %s, NULL, 1)`, value))
				p.read("orders", n+2) // so that each is a batch
			}
			conn := connect(t, address)
			if _, err := conn.Exec(t.Context(), `SELECT count(*) FROM weir.events('orders')`); err != nil {
				t.Fatal(err)
			}
			pgtest.Exec(t, address, `UPDATE weir.batch SET bytes = set_byte(bytes, octet_length(bytes) - 2, ascii('9')) WHERE base_offset = 1 AND partition_id <> 0`)
			_, err := conn.Exec(t.Context(), `SELECT count(*) FROM weir.events('orders', 1, 1)`)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || refused.Code != "XX001" || !strings.Contains(refused.Message, `batch 1 of partition 1 of topic "orders"`) ||
				!strings.Contains(refused.Hint, "read from offset 2 on") {
				t.Errorf("%+v, want an error that names the batch and says where to read on", err)
			}
			for sql, want := range map[string]int{
				`SELECT count(*) FROM weir.events('orders', 0, 0)`:    1, // another partition
				`SELECT count(*) FROM weir.events('orders', 0, 1, 1)`: 1, // before the changed batch
				`SELECT count(*) FROM weir.events('orders', 2, 1)`:    1, // behind it
			} {
				var count int
				if err := conn.QueryRow(t.Context(), sql).Scan(&count); err != nil || count != want {
					t.Errorf("%s: %d (%v), want %d", sql, count, err, want)
				}
			}
		})
	}
}

// Servers have crc32c from version 18 on. What stands for it before must say the same.
func TestIsCodewordAgreesWithCRC32C(t *testing.T) {
	address := pgtest.URL(t)
	start(t, address)
	conn := connect(t, address)
	seed := time.Now().UnixNano()
	random := mathrand.New(mathrand.NewSource(seed))
	made := func() []byte {
		most := 20_000
		if random.Intn(3) == 0 {
			most = 300
		}
		raw := make([]byte, 21+random.Intn(most+1))
		random.Read(raw)
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		return raw
	}
	var all [][]byte
	for range 200 {
		all = append(all, made())
	}
	fits := func(all ...[]byte) (fits bool) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `SELECT weir.is_codeword(string_agg(weir.codeword(x.raw), '')) FROM unnest($1::bytea[]) AS x(raw)`, all).Scan(&fits); err != nil {
			t.Fatal(err)
		}
		return fits
	}
	if !fits(all...) {
		t.Errorf("seed %d: %d batches in a row are taken for changed", seed, len(all))
	}
	for _, raw := range all {
		if !fits(raw) {
			t.Errorf("seed %d: a batch of %d bytes is taken for changed", seed, len(raw))
		}
		at := 17 + random.Intn(len(raw)-17)
		raw[at] ^= byte(1 + random.Intn(255))
		if fits(raw) {
			t.Errorf("seed %d: a batch of %d bytes with a change at byte %d is taken for sound", seed, len(raw), at)
		}
	}
	if fits(all...) {
		t.Errorf("seed %d: %d changed batches in a row are taken for sound", seed, len(all))
	}
	raw := append(made(), make([]byte, 500)...)[:500]
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	var changed, sound int
	if err := conn.QueryRow(t.Context(), `
		SELECT count(*), count(*) FILTER (WHERE weir.is_codeword(set_bit(x.bytes, n, 1 - get_bit(x.bytes, n))))
		FROM (SELECT weir.codeword($1) AS bytes) AS x, generate_series(0, 8 * octet_length(x.bytes) - 1) AS n`, raw).Scan(&changed, &sound); err != nil {
		t.Fatal(err)
	}
	if changed < 8*400 || sound > 0 {
		t.Errorf("seed %d: of %d single bits that are changed %d go unseen", seed, changed, sound)
	}
}
