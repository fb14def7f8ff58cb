package sqlfn

import (
	"fmt"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// Of many positions some are refused, since their keys have another base: the others are written,
// each with its own value.
func TestOfManyPositionsThoseAreCarriedWhoseKeysNobodyElseWrote(t *testing.T) {
	const n = 4000
	address := pgtest.URL(t)
	openInbox(t, address)
	array := func(element string) string {
		return fmt.Sprintf(`(SELECT array_agg(%s ORDER BY n) FROM generate_series(1, %d) AS n)`, element, n)
	}
	pgtest.Exec(t, address, fmt.Sprintf(`INSERT INTO weir.state (key, version, put_at, value)
		SELECT to_char(n, '"k"00000'), 1, now(), convert_to('{"offset": 5}', 'UTF8') FROM generate_series(1, %d) AS n WHERE n %% 3 > 0`, n))
	keys := array(`to_char(n, '"k"00000')`)
	none := `'{}'::int[]`
	conn := session(t, address)

	// A key that is not there has no base, and nobody to compare with: one of three is carried, and
	// of the others none.
	run(t, conn, `SELECT weir.carry('{}', `+keys+`, `+array(`-1::bigint`)+`, `+array(`6::bigint`)+`, '{}', `+keys+`, `+
		none+`, `+none+`, `+none+`, '{}', `+none+`, `+none+`, `+none+`, `+none+`, '{}', `+
		array(`1`)+`, `+array(`n::int`)+`, `+array(`2::bigint`)+`, `+array(`n::int % 10`)+`, `+array(`1`)+`, `+array(`0`)+`, '0123456789')`)

	if got := pgtest.Value(t, address, `SELECT format('%s %s %s', count(*) FILTER (WHERE version = 2), count(*) FILTER (WHERE version = 1),
		bool_and(convert_from(value, 'UTF8') = (substr(key, 2)::int % 10)::text) FILTER (WHERE version = 2)) FROM weir.state WHERE key LIKE 'k%'`); got != "1333 2667 t" {
		t.Errorf("carried, refused, with their own values: %s, want 1333 2667 t", got)
	}
}
