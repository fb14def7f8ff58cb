package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/broker"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// process is a log on a store, and a broker on it.
type process struct {
	*broker.Registry
	host string
	log  *eventlog.Log
	stop func() // kills it: its key stays
	away func() // stops only the registry, as if the process were suspended
}

// on is the configuration of a broker that listens at one port of a host.
func on(host string, port int) broker.Config {
	return broker.Config{Host: host, Addresses: map[string]string{"plaintext": fmt.Sprintf("%s.example:%d", host, port)}, Logger: quiet}
}

func start(t *testing.T, store eventlog.Store, cfg broker.Config) *process {
	t.Helper()
	p, err := tryStart(t, store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tryStart(t *testing.T, store eventlog.Store, cfg broker.Config) (*process, error) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { log.Run(ctx) })
	p := &process{Registry: broker.New(log, cfg), host: cfg.Host, log: log}
	p.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(p.stop)
	if err := p.Join(ctx); err != nil {
		return nil, err
	}
	p.run(ctx, &running)
	return p, nil
}

// run follows the others until ctx ends or away is called.
func (p *process) run(ctx context.Context, running *sync.WaitGroup) {
	known, away := context.WithCancel(ctx)
	done := make(chan struct{})
	running.Go(func() { defer close(done); p.Registry.Run(known) })
	p.away = func() { away(); <-done }
}

func ids(p *process) (all []int32) {
	for _, b := range p.View().Brokers() {
		all = append(all, b.ID)
	}
	return all
}

func wantIDs(t *testing.T, when string, p *process, want ...int32) {
	t.Helper()
	if got := ids(p); !slices.Equal(got, want) {
		t.Errorf("%s: broker %d knows %v, want %v", when, p.View().Self(), got, want)
	}
}

// noticed is when every broker has seen a change that was made before.
const noticed = 1100 * time.Millisecond

// leaseEnds is when a broker that died counts as dead, and all have seen that.
const leaseEnds = 4*time.Second + noticed

func TestBrokersKnowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := start(t, store, on("a", 9092))
		wantIDs(t, "alone", a, 1)
		b, c := start(t, store, on("b", 9092)), start(t, store, on("c", 9092))
		time.Sleep(noticed)
		for _, p := range []*process{a, b, c} {
			wantIDs(t, "three", p, 1, 2, 3)
			if got := p.View().Brokers()[2].Addresses["plaintext"]; got != "c.example:9092" {
				t.Errorf("broker 3 is at %s", got)
			}
		}
		b.stop()
		time.Sleep(2 * time.Second)
		wantIDs(t, "before the lease ended", a, 1, 2, 3)
		time.Sleep(leaseEnds)
		wantIDs(t, "b died", a, 1, 3)
		d := start(t, store, on("d", 9092))
		if d.View().Self() != 2 {
			t.Errorf("the new broker has id %d, want the lowest that is free", d.View().Self())
		}
		time.Sleep(noticed)
		wantIDs(t, "d came", c, 1, 2, 3)
		d.away()
		if others := d.Leave(t.Context()); !others || d.View().Has(2) {
			t.Errorf("d left: others %v, and it knows %v", others, ids(d))
		}
		time.Sleep(noticed)
		wantIDs(t, "d left", a, 1, 3)
	})
}

// Two brokers with one id: the second waits for the first's lease, and is refused if that lives.
func TestAnIDBelongsToOneBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		seven, again := on("a", 9092), on("b", 9092)
		seven.ID, again.ID = new(int32(7)), new(int32(7))
		a := start(t, store, seven)
		if _, err := tryStart(t, store, again); !errors.Is(err, broker.ErrIDInUse) {
			t.Errorf("the second: %v", err)
		}
		a.stop()
		b := start(t, store, again) // after a crash, the same machine comes back within the lease
		wantIDs(t, "after the first died", b, 7)
	})
}

// A process that was killed and is started again at its address is the only broker there at once,
// whatever its id, and clients of other brokers hear of no second one.
func TestAPastSelfIsReplacedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before, now *int32
		want        int32
	}{
		"its id is given, and is 0":      {new(int32(0)), new(int32(0)), 0},
		"ids are drawn":                  {nil, nil, 1},
		"its id is given":                {new(int32(1)), new(int32(1)), 1},
		"it was given another id":        {new(int32(7)), new(int32(5)), 5},
		"its id was given, and is drawn": {new(int32(7)), nil, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				first, again := on("a", 9092), on("a", 9092)
				first.ID, again.ID = c.before, c.now
				var said strings.Builder
				again.Logger = slog.New(slog.NewTextHandler(&said, nil))
				start(t, store, first).stop()
				began := time.Now()
				a := start(t, store, again)
				if waited := time.Since(began); waited > 0 {
					t.Errorf("it waited %v for itself", waited)
				}
				wantIDs(t, "when it started", a, c.want)
				b := start(t, store, on("b", 9092))
				time.Sleep(noticed)
				own := b.View().Self()
				for _, p := range []*process{a, b} {
					wantIDs(t, "two", p, slices.Sorted(slices.Values([]int32{own, c.want}))...)
				}
				time.Sleep(leaseEnds)
				if err := a.Healthy(); err != nil || strings.Contains(said.String(), "WARN") {
					t.Errorf("of its past self it says %v, %s", err, &said)
				}
			})
		})
	}
}

// Of two processes that live and are advertised at one address, all clients are sent to the one
// that started last. Both say so in words; the other one is not healthy until it is alone.
func TestAnAddressBelongsToTheProcessThatStartedLast(t *testing.T) {
	for name, id := range map[string]*int32{"id drawn": nil, "id 1": new(int32(1))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				behind := func(host string) (broker.Config, *lockedBuilder) {
					said := new(lockedBuilder)
					return broker.Config{ID: id, Host: host, Addresses: map[string]string{"plaintext": "weir.example:9092"}, Logger: slog.New(slog.NewTextHandler(said, nil))}, said
				}
				firstCfg, firstSaid := behind("pod-1")
				lastCfg, lastSaid := behind("pod-2")
				first, other := start(t, store, firstCfg), start(t, store, on("b", 9092))
				time.Sleep(noticed)
				last := start(t, store, lastCfg)
				time.Sleep(3 * noticed)
				for _, p := range []*process{first, last, other} {
					brokers := p.View().Brokers()
					if len(brokers) != 2 || brokers[0].Host != "pod-2" || brokers[1].Host != "b" {
						t.Errorf("named are %v", brokers)
					}
					for n := range 20 {
						group := fmt.Sprint("group ", n)
						if at := p.View().Coordinator(group); p.View().Is(at) != (at.Host == p.host) {
							t.Errorf("the process on %s says of the coordinator %v: it is itself: %v", p.host, at, p.View().Is(at))
						}
					}
				}
				if err := first.Healthy(); err == nil || !strings.Contains(err.Error(), "pod-2") || !strings.Contains(err.Error(), "weir.example:9092") {
					t.Errorf("the first says of its health: %v", err)
				}
				if err := last.Healthy(); err != nil {
					t.Errorf("the last is not healthy: %v", err)
				}
				for said, its := range map[*lockedBuilder]string{firstSaid: "pod-2", lastSaid: "pod-1"} {
					if id == nil || said == firstSaid { // the first has no id any more, so it has no key that says that it lives
						if n := strings.Count(said.String(), "is advertised at the address of this broker"); n != 1 || !strings.Contains(said.String(), its) {
							t.Errorf("it was said %d times: %s", n, said)
						}
					}
				}
				time.Sleep(time.Minute)
				if n := strings.Count(firstSaid.String(), "\n"); n > 6 {
					t.Errorf("in a minute the first wrote %d lines: %s", n, firstSaid)
				}
				last.away()
				if !last.Leave(t.Context()) {
					t.Error("the last stops and does not know that another process is at its address")
				}
				if b := last.View().Brokers(); id == nil && !slices.ContainsFunc(b, func(b broker.Broker) bool { return b.Host == "pod-1" }) {
					t.Errorf("the last has left, and names %v", b)
				}
				time.Sleep(leaseEnds)
				if b := first.View().Brokers(); first.Healthy() != nil || len(b) != 2 || b[0].Host != "b" && b[1].Host != "b" || !first.View().Is(first.View().Coordinator("x")) && first.View().Coordinator("x").Host != "b" {
					t.Errorf("the first is alone at its address: %v, %v", b, first.Healthy())
				}
			})
		})
	}
}

// Brokers on the store whose clients cannot be told of each other say so, once.
func TestBrokersThatCannotBeNamedAreToldInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, said := memory.New(), new(lockedBuilder)
		cfg := broker.Config{Host: "x", Addresses: map[string]string{"p": "0.0.0.0:9092"}, Logger: slog.New(slog.NewTextHandler(said, nil))}
		start(t, store, cfg)
		start(t, store, broker.Config{Host: "y", Addresses: map[string]string{"p": "0.0.0.0:9092"}, Logger: quiet})
		time.Sleep(time.Minute)
		if n := strings.Count(said.String(), "not told of them"); n != 1 || !strings.Contains(said.String(), "on y at p=0.0.0.0:9092") {
			t.Errorf("said %d times: %s", n, said)
		}
	})
}

// lockedBuilder collects what several goroutines log.
type lockedBuilder struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A broker that was suspended for longer than its lease lost its id to another; it takes a new one,
// and the other's stays.
func TestASuspendedBrokerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := start(t, store, on("a", 9092))
		a.away()
		time.Sleep(leaseEnds)
		b := start(t, store, on("b", 9092))
		wantIDs(t, "while a is away", b, 1)
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		a.run(ctx, &running)
		time.Sleep(2*time.Second + noticed)
		wantIDs(t, "a came back", a, 1, 2)
		wantIDs(t, "a came back", b, 1, 2)
		if a.View().Self() != 2 {
			t.Errorf("a has id %d, which is b's", a.View().Self())
		}
		cancel()
		running.Wait()
	})
}

// Clients of one listener are told only of brokers that they can reach: brokers with the same
// listeners, at addresses that are not 0.0.0.0, and on loopback only those of the same machine.
func TestWhoIsNamedCanBeReached(t *testing.T) {
	at := func(host string, addresses map[string]string) broker.Config {
		return broker.Config{Host: host, Addresses: addresses, Logger: quiet}
	}
	for name, c := range map[string]struct {
		a, b broker.Config
		see  bool
	}{
		"one machine, loopback":      {at("x", map[string]string{"p": "127.0.0.1:1"}), at("x", map[string]string{"p": "127.0.0.1:2"}), true},
		"two machines, loopback":     {at("x", map[string]string{"p": "127.0.0.1:1"}), at("y", map[string]string{"p": "127.0.0.1:1"}), false},
		"two machines, localhost":    {at("x", map[string]string{"p": "localhost:1"}), at("y", map[string]string{"p": "localhost:1"}), false},
		"two machines":               {at("x", map[string]string{"p": "10.0.0.1:1"}), at("y", map[string]string{"p": "10.0.0.2:1"}), true},
		"one is everywhere":          {at("x", map[string]string{"p": "0.0.0.0:1"}), at("y", map[string]string{"p": "10.0.0.2:1"}), false},
		"both are everywhere":        {at("x", map[string]string{"p": "[::]:1"}), at("y", map[string]string{"p": "[::]:1"}), false},
		"other listeners":            {at("x", map[string]string{"p": "10.0.0.1:1"}), at("y", map[string]string{"q": "10.0.0.2:1"}), false},
		"one has a listener more":    {at("x", map[string]string{"p": "10.0.0.1:1", "q": "10.0.0.1:2"}), at("y", map[string]string{"p": "10.0.0.2:1"}), false},
		"one listener is loopback":   {at("x", map[string]string{"p": "10.0.0.1:1", "q": "127.0.0.1:2"}), at("y", map[string]string{"p": "10.0.0.2:1", "q": "127.0.0.1:2"}), false},
		"the same names, one by one": {at("x", map[string]string{"p": "a.example:1", "q": "a.example:2"}), at("y", map[string]string{"p": "b.example:1", "q": "b.example:2"}), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				a, b := start(t, store, c.a), start(t, store, c.b)
				time.Sleep(noticed)
				for _, p := range []*process{a, b} {
					if got := len(p.View().Brokers()) == 2; got != c.see || !p.View().Has(p.View().Self()) {
						t.Errorf("broker %d knows %v", p.View().Self(), ids(p))
					}
				}
			})
		})
	}
}

// costly is a store whose commits cost money. It counts those of brokers.
type costly struct {
	eventlog.Store
	every time.Duration
	next  atomic.Pointer[time.Time] // when it lets a commit begin; nil: at any time
	puts  atomic.Int64
}

func (s *costly) HeartbeatEvery() time.Duration { return s.every }
func (s *costly) CommitEvery() time.Duration    { return 0 }
func (s *costly) FlushBytes() int               { return 0 }

func (s *costly) NextCommit() (at time.Time) {
	if next := s.next.Load(); next != nil {
		at = *next
	}
	return at
}

func (s *costly) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, p := range e.Puts {
			if strings.HasPrefix(p.Key, "broker/") {
				s.puts.Add(1)
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

// A store whose commits cost money says how often a broker puts its key. Brokers judge each other
// by that, also one that puts its own more often.
func TestAStoreSaysHowOftenABrokerPutsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &costly{Store: memory.New(), every: 5 * time.Second}
		seldom := start(t, store, on("a", 9092))
		often := start(t, store.Store, on("b", 9092))
		time.Sleep(noticed)
		for range 60 {
			wantIDs(t, "within a minute", seldom, 1, 2)
			wantIDs(t, "within a minute", often, 1, 2)
			time.Sleep(time.Second)
		}
		if n := store.puts.Load(); n < 12 || n > 14 {
			t.Errorf("in a minute the broker put its key %d times, want about 12", n)
		}
		third := start(t, store, on("c", 9092))
		third.stop()
		time.Sleep(14 * time.Second)
		wantIDs(t, "before its lease ended", often, 1, 2, 3)
		time.Sleep(6*time.Second + noticed)
		wantIDs(t, "after its lease ended", often, 1, 2)
		wantIDs(t, "after its lease ended", seldom, 1, 2)
		often.stop()
		time.Sleep(leaseEnds)
		wantIDs(t, "after the other's lease ended", seldom, 1)
	})
}

// A broker stops while the store lets no commit begin, and does not wait that long. Its key goes
// all the same, with the last commit of its process.
func TestABrokerThatStopsIsNamedNoMoreThoughTheStoreMadeItWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &costly{Store: memory.New(), every: 5 * time.Second}
		a, b := start(t, store.Store, on("a", 9092)), start(t, store, on("b", 9092))
		time.Sleep(noticed)
		wantIDs(t, "both live", a, 1, 2)
		b.away()
		next := time.Now().Add(5 * time.Second)
		store.next.Store(&next)
		leaving, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if !b.Leave(leaving) {
			t.Error("b knows of no other broker")
		}
		b.stop()
		time.Sleep(noticed)
		wantIDs(t, "b stopped", a, 1)
	})
}

// behind is a store whose clock was set back: no key ages.
type behind struct{ eventlog.Store }

func (s behind) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	for i := range kvs {
		kvs[i].Age = 0
	}
	return kvs, err
}

// The store's clock is set back, and a broker dies. The others see that its key stays as it is.
func TestABrokerThatDiesWhileTheClockIsBehindIsNamedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := behind{memory.New()}
		a, b := start(t, store, on("a", 9092)), start(t, store, on("b", 9092))
		time.Sleep(2 * leaseEnds)
		wantIDs(t, "both live", a, 1, 2)
		b.stop()
		time.Sleep(2 * time.Second)
		wantIDs(t, "before the lease ended", a, 1, 2)
		time.Sleep(leaseEnds)
		wantIDs(t, "b died", a, 1)
		seven := on("c", 9092)
		seven.ID = new(int32(2))
		wantIDs(t, "c took its id", start(t, store, seven), 1, 2)
	})
}

// forgetful is a store that loses its answers to commits of brokers while it is told to.
type forgetful struct {
	eventlog.Store
	loses atomic.Bool
}

func (s *forgetful) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	of := func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "broker/") })
	}
	if s.loses.Load() && slices.ContainsFunc(flush, of) {
		return nil, fmt.Errorf("the answer was lost: %w", eventlog.ErrUnsure)
	}
	return out, err
}

// A broker that does not know whether it has put its key finds out, and keeps its id, so that
// clients see no change. The same holds when nobody could put a key for longer than a lease.
func TestABrokerWhoseAnswersAreLostKeepsItsID(t *testing.T) {
	for _, lost := range []time.Duration{time.Second + noticed, leaseEnds + 2*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := &forgetful{Store: memory.New()}
			a, b := start(t, store, on("a", 9092)), start(t, store, on("b", 9092))
			time.Sleep(noticed)
			store.loses.Store(true)
			for range lost / (100 * time.Millisecond) {
				time.Sleep(100 * time.Millisecond)
				wantIDs(t, "while answers are lost", a, 1, 2)
				wantIDs(t, "while answers are lost", b, 1, 2)
			}
			store.loses.Store(false)
			time.Sleep(leaseEnds)
			wantIDs(t, "later", a, 1, 2)
			wantIDs(t, "later", b, 1, 2)
			if a.View().Self() != 1 || b.View().Self() != 2 {
				t.Errorf("a has id %d, and b %d", a.View().Self(), b.View().Self())
			}
		})
	}
}

// When the store was away for longer than a lease, each broker gets its own id back.
func TestBrokersKeepTheirIDsWhenTheStoreWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a, b := start(t, store, on("a", 9092)), start(t, store, on("b", 9092))
		time.Sleep(noticed)
		a.away()
		b.away()
		time.Sleep(2 * leaseEnds)
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		b.run(ctx, &running) // the other one's id is the lowest that seems to be free
		time.Sleep(noticed)
		a.run(ctx, &running)
		time.Sleep(leaseEnds)
		wantIDs(t, "later", a, 1, 2)
		wantIDs(t, "later", b, 1, 2)
		if a.View().Self() != 1 || b.View().Self() != 2 {
			t.Errorf("a has id %d, and b %d", a.View().Self(), b.View().Self())
		}
		cancel()
		running.Wait()
	})
}

func TestBrokersTellEachOtherWhatTheyHaveDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, records := memory.New(), atomic.Int64{}
		cfg := on("a", 9092)
		cfg.Counters = func() *broker.Counters { return &broker.Counters{Records: float64(records.Load())} }
		start(t, store, cfg)
		b := start(t, store, on("b", 9092))
		for _, want := range []int64{7, 700} {
			records.Store(want)
			time.Sleep(2 * noticed)
			for _, other := range b.View().All() {
				switch got := other.Counters; {
				case b.View().Is(other) && got != nil:
					t.Errorf("b tells %v, and has nothing to tell", *got)
				case !b.View().Is(other) && (got == nil || got.Records != float64(want)):
					t.Errorf("a has told b %v, want %d records", got, want)
				}
			}
			if n := len(b.View().All()); n != 2 {
				t.Errorf("b knows %d brokers", n)
			}
		}
	})
}
