package system

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// A URL can name a database twice, and then its parameter is the one that counts.
func TestADatabaseOfItsOwnIsUsedWhateverTheURLNames(t *testing.T) {
	for _, parameter := range []string{"dbname", "database"} {
		address, db, err := freshDatabase(pgtest.URL(t) + "&" + parameter + "=postgres")
		if err != nil {
			t.Fatal(err)
		}
		if name := pgtest.Value(t, address, `SELECT current_database()`); !strings.HasPrefix(name, "weir_bench_") {
			t.Errorf("with %s in the URL the database %s is used", parameter, name)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
