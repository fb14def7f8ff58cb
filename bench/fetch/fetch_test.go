package fetch_test

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/fetch"
)

// What was not fetched is told together with the command that fetches it.
func TestWhatIsMissingSaysHowItIsFetched(t *testing.T) {
	t.Setenv("WEIR_BENCH_HOME", t.TempDir())
	for _, p := range fetch.Peers() {
		_, err := fetch.Dir(p.Name)
		if err == nil || !strings.Contains(err.Error(), "weir-bench fetch "+p.Name) || !strings.Contains(err.Error(), p.Version) {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	if err := fetch.Get(t.Context(), "nothing", nil); err == nil || !strings.Contains(err.Error(), "kafka, message-db, nats, nisshi, pg-boss, pgmq") {
		t.Errorf("what does not exist is refused with %v", err)
	}
}
