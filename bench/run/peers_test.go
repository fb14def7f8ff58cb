package run_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// peers are the programs of others that are fetched, and what each is measured as. Their tests take
// many minutes, and fail where a peer breaks its promise: "make peers" runs them. A test of
// one that was not fetched is skipped, and says which command fetches it.
var peers = []struct {
	name string
	kind workload.Kind
	kill bool // it is killed, too
}{
	{"kafka", workload.Log, true},
	{"nats", workload.Log, false},
	{"nats", workload.Queue, true},
	{"message-db", workload.Streams, false},
	{"emmett", workload.Streams, false},
	{"pgmq", workload.Queue, false},
	{"pg-boss", workload.Queue, false},
	{"graphile-worker", workload.Queue, false},
	{"pgq-50ms", workload.Log, false},
	{"pgq-50ms", workload.Queue, true},
	{"river-1ms", workload.Queue, true},
	{"redis", workload.Log, true},
	{"redis", workload.Queue, true},
	{"valkey", workload.Log, false},
	{"valkey", workload.Queue, true},
	{"bullmq", workload.Queue, true},
	{"ferretdb", workload.Streams, true},
	{"nisshi", workload.Log, true},
	{"nisshi-sqlite", workload.Log, false},
}

func wantPeers(t *testing.T) {
	t.Helper()
	if os.Getenv("WEIR_BENCH_PEERS") == "" {
		t.Skip("systems of others are tested by: make peers")
	}
}

// What was acknowledged comes once, in order: at a rate, and as fast as it goes.
func TestPeersKeepTheirPromises(t *testing.T) {
	wantPeers(t)
	for _, p := range peers {
		for _, rate := range []float64{0, 100} {
			t.Run(p.name+" "+string(p.kind), func(t *testing.T) {
				w := load(p.kind, rate)
				w.Phases.Measure, w.Phases.Drain = time.Second, time.Minute
				w.Follow = p.kind == workload.Streams && p.name != "emmett" // it has no projection here
				result, _ := measure(t, p.name, w)
				kept(t, result)
			})
		}
	}
}

// What a durable peer acknowledged before a kill is there after it, once.
func TestPeersLoseNothingAtAKill(t *testing.T) {
	wantPeers(t)
	for _, p := range peers {
		if p.kill {
			t.Run(p.name+" "+string(p.kind), func(t *testing.T) {
				kept(t, killOnce(t, p.name, p.kind, func(system.System) []system.Mode { return []system.Mode{system.Durable} }))
			})
		}
	}
}

// kept fails a test unless all that was acknowledged was delivered. A machine that is too slow for
// a figure is not too slow for that.
func kept(t *testing.T, r run.Result) {
	t.Helper()
	for _, c := range r.Cells {
		if strings.Contains(c.Void, "not flushed") {
			t.Skip(c.Void) // the time of a flush says little on a machine that runs tests
		}
		if !c.Verdict.Clean() || c.NotRun != "" || c.Verdict.Acked == 0 || c.Verdict.Delivered < c.Verdict.Acked {
			t.Errorf("%+v, %s", c.Verdict, c.Problem())
		}
	}
}
