package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/broker"
)

// Two brokers at one address are a warning, which does not change the exit code: one of them may
// have been killed a moment ago.
func TestDoctorWarnsOfBrokersAtOneAddress(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	s, err := store.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id := range int32(2) {
		value, err := json.Marshal(broker.Broker{ID: id, Host: "host", Addresses: map[string]string{"plaintext": "balancer:9092"}, Life: fmt.Sprint(id), LeaseMS: time.Hour.Milliseconds()})
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: fmt.Sprint(broker.Keys, id), Version: 1, Value: value}}}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	weir(t, "", "doctor", "--store", url).want(t, exitOK, "warn   brokers at one address", "0 on host and 1 on host at balancer:9092", "--advertise address of its own")
}
