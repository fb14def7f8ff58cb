package broker_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/broker"
)

// Brokers that are advertised at one address are found on each store without opening it. Of a
// broker whose key is older than its lease nothing is told.
func TestBrokersAtOneAddressAreFoundFromOutside(t *testing.T) {
	for _, kind := range everystore.Durable() {
		t.Run(kind, func(t *testing.T) {
			url := everystore.URL(t, kind)
			opened := everystore.Open(t, url)
			found := func() []string {
				t.Helper()
				keys, err := store.Keys(t.Context(), url, broker.Keys, broker.KeysMost)
				if err != nil {
					t.Fatal(err)
				}
				return broker.AtOneAddress(keys)
			}
			put := func(id int32, key, address string, lease time.Duration) {
				t.Helper()
				value, err := json.Marshal(broker.Broker{ID: id, Host: "host", Addresses: map[string]string{"plaintext": address}, Life: key, LeaseMS: lease.Milliseconds()})
				if err != nil {
					t.Fatal(err)
				}
				out, err := opened.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: value}}}})
				if err != nil || out[0].Err != nil {
					t.Fatal(err, out)
				}
			}
			put(1, "broker/1", "balancer:9092", time.Hour)
			put(2, "broker/2", "other:9092", time.Hour)
			put(3, "broker/3", "balancer:9092", -time.Second) // its lease is over
			put(4, "brokers/4", "balancer:9092", time.Hour)   // not a broker's key
			if pairs := found(); len(pairs) != 0 {
				t.Errorf("found %q, want none", pairs)
			}
			put(5, "broker/5", "balancer:9092", time.Hour)
			if pairs, want := found(), []string{"1 on host and 5 on host at balancer:9092"}; !slices.Equal(pairs, want) {
				t.Errorf("found %q, want %q", pairs, want)
			}
		})
	}
}
