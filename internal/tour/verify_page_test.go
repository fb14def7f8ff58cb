package tour

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
)

// The page examines a database with one damaged batch, a bucket behind two addresses, and a store
// that keeps its promises.
func TestTheVerifyPageShowsWhatHappens(t *testing.T) {
	database, bucket := pgtest.URL(t), parsed(t, s3test.URL(t))
	endpoint := bucket.Query().Get("endpoint")
	at := func(endpoint string) string {
		return "s3://" + bucket.Host + "/prod?path_style=true&endpoint=" + endpoint
	}
	stage{
		page: "../../docs/verify.md", env: []string{"WEIR_STORE=" + database},
		named: []string{"postgres://weir@db.internal/weir", `"$WEIR_STORE"`, "20s", "1s", "/mnt/other/", "./",
			"s3://events/prod?endpoint=http://s3-1:9000", at(endpoint), "s3://events/prod?endpoint=http://s3-2:9000", at(strings.Replace(endpoint, "127.0.0.1", "localhost", 1))},
		samples: []string{"partition 3 (17 of the store), offset 81200", "0x1f3a90c2", "812", "0x77b1e09d", "212", "90311", "4210388", "18220", "2210", "112.4", "s3://events/prod/ at http://s3-1:9000", "753", "761", "18:29:47",
			"2305          0        0        7.0s            0.0s ", "2310          0        130      7.0s            7.1s ", "2290          0        0        7.1s            6.0s ",
			"2565          5        510      5.5s            5.6s ", "2540          5        485      5.4s            7.1s ", "2370          0        525      5.5s            5.9s ", "/mnt/other/"},
		before: map[string]func(*shell){"weir verify --store": func(sh *shell) {
			sh.begins()
			sh.must(stopWeir + "; unset WEIR_SERVER WEIR_BOOTSTRAP")
			sql(t, database, `UPDATE weir.batch SET bytes = set_byte(bytes, octet_length(bytes) - 2, ascii('9')) WHERE partition_id = (SELECT id FROM weir.partitions WHERE topic = 'orders')`)
		}},
	}.replay(t)
}
