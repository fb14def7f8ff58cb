package inbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
)

func TestAShardRefusesWhatCannotBePublished(t *testing.T) {
	r := newSetRig(t, "postgres", "postgres", "mysql", "sqlite")
	r.opened()
	if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "states", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dbs[0].Exec("SELECT weir.publish('states', NULL::text, 'v')"); err == nil || !strings.Contains(err.Error(), `topic "states" is compacted`) {
		t.Errorf("no key for a compacted topic on shard 0: %v", err)
	}
	if _, err := r.dbs[0].Exec(publishes["postgres"], "nobody", "k", "v"); err == nil || !strings.Contains(err.Error(), `topic "nobody" does not exist`) {
		t.Errorf("an unknown topic on shard 0: %v", err)
	}
	if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "accounts", Partitions: 1, Writer: "streams"}); err != nil {
		t.Fatal(err)
	}
	for call, code := range map[string]string{
		"SELECT weir.publish('accounts', 'k', 'v')":                                              "WE009",
		"SELECT weir.publish_all('accounts', ARRAY['k'], ARRAY['v'])":                            "WE009",
		"SELECT weir.tombstone('accounts', 'k')":                                                 "WE009",
		"SELECT weir.publish('orders', 'k', 'v', '{}', 6)":                                       "WE002",
		"SELECT weir.publish('orders', 'k', repeat('v', 1048588))":                               "WE003",
		"SELECT weir.publish('orders', 'k', 'v', jsonb_build_object('h', repeat('v', 1048588)))": "WE003",
	} {
		var refused *pgconn.PgError
		if _, err := r.dbs[0].Exec(call); !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("%s on shard 0: %v, want %s", call, err, code)
		}
	}
	tx, err := r.dbs[0].Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("SELECT weir.publish('orders', 'k', repeat('v', 1048507), '{}', 5)"); err != nil {
		t.Errorf("the last partition, and the largest event: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]string{
		"SELECT weir.publish('orders', 'k', NULL::text)":        "value is null",
		"SELECT weir.publish('__weir_later', 'k', 'v')":         "belongs to weir",
		"SELECT weir.publish('orders', 'k', 'v', '[1]')":        "headers is of type array",
		"SELECT weir.publish('orders', 'k', 'v', '{\"a\": 1}')": "is of type number",
		"SELECT weir.publish('orders', 'k', 'v', '{}', -1)":     "partition -1",
		"SELECT weir.publish('', 'k', 'v')":                     "not the name of a topic",
		"SELECT weir.tombstone('orders', NULL::text)":           "key is null",
	} {
		if _, err := r.dbs[1].Exec(call); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", call, err, want)
		}
	}
	for n := 1; n < len(r.kinds); n++ {
		if _, err := r.dbs[n].Exec(publishes[r.kinds[n]], "nobody", "k", "v"); err != nil {
			t.Errorf("shard %d: %v", n, err)
		}
		r.in(n, true, "k", fmt.Sprint(n))
	}
	r.movers()
	r.empty()
	if got := r.found(3)["k"]; len(got) != 3 {
		t.Error(got)
	}
	for n := 1; n < len(r.kinds); n++ {
		var reason string
		if err := r.dbs[n].QueryRow("SELECT reason FROM " + r.table(n, "weir_inbox_refused")).Scan(&reason); err != nil || !strings.Contains(reason, "nobody") {
			t.Errorf("shard %d: %q, %v", n, reason, err)
		}
	}
}
