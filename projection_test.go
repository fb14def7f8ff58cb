package weir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog/batch"
)

// model is a read model: what a handler made of events, by run.
type model struct {
	mu   sync.Mutex
	runs map[int64][]string // category/stream@version type
}

func (m *model) handle(_ context.Context, e weir.ProjectedEvent) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs == nil {
		m.runs = make(map[int64][]string)
	}
	what := fmt.Sprintf("%s/%s@%d %s", e.Category, e.Stream, e.Version, e.Type)
	if e.Deleted {
		what = fmt.Sprintf("%s/%s deleted", e.Category, e.Stream)
	}
	m.runs[e.Run] = append(m.runs[e.Run], what)
	return nil
}

// of returns what a run has, sorted by stream; within a stream it is in the order in which it came.
func (m *model) of(run int64) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Clone(m.runs[run])
	slices.SortStableFunc(list, func(a, b string) int {
		stream := func(s string) string {
			return strings.FieldsFunc(s, func(r rune) bool { return r == '@' || r == ' ' })[0]
		}
		return strings.Compare(stream(a), stream(b))
	})
	return list
}

func (m *model) numbers() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.runs))
}

// project starts a projector that is closed with the test, before its Log.
func project(t *testing.T, w *weir.Log, p weir.Projection) *weir.Projector {
	t.Helper()
	j, err := w.Project(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeProjector(t, j) })
	return j
}

func closeProjector(t *testing.T, j *weir.Projector) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := j.Close(ctx); err != nil {
		t.Errorf("close the projector: %v", err)
	}
}

// projected waits until a projection has nothing left to do.
func projected(t *testing.T, w *weir.Log, name string) weir.ProjectionInfo {
	t.Helper()
	var info weir.ProjectionInfo
	eventually(t, "projection "+name+" is up to date", func() bool {
		var err error
		info, err = w.Projection(t.Context(), name)
		return err == nil && info.Run.Lag == 0 && info.Next == nil
	})
	return info
}

func TestAProjectionGetsTheEventsOfEachStreamInOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 4)
		var want []string
		add := func() {
			for i := range 10 {
				stream := fmt.Sprint(i)
				for n := range 3 {
					kind := fmt.Sprint("Type", n)
					done := appendTo(t, c, stream, kind)
					want = append(want, fmt.Sprintf("order/%s@%d %s", stream, done.First, kind))
				}
			}
			slices.Sort(want)
		}
		add()
		var m model
		j := project(t, w, weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle})
		add()
		projected(t, w, "orders")
		if got := m.of(1); !slices.Equal(got, want) {
			t.Errorf("it got %q, want %q", got, want)
		}
		closeProjector(t, j)
		project(t, w, weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle})
		add()
		projected(t, w, "orders")
		if got := m.of(1); !slices.Equal(got, want) {
			t.Errorf("after a restart it got %q, want %q", got, want)
		}
		if _, err := c.Delete(t.Context(), "3", weir.AnyVersion); err != nil {
			t.Fatal(err)
		}
		projected(t, w, "orders")
		if got := m.of(1); !slices.Contains(got, "order/3 deleted") || len(got) != len(want)+1 {
			t.Errorf("after a deletion it got %q", got)
		}
	})
}

func TestAProjectionOfAllCategoriesGetsThoseThatComeLater(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		appendTo(t, category(t, w, "order", 1), "1", "Placed")
		var m model
		project(t, w, weir.Projection{Name: "everything", Handler: m.handle})
		eventually(t, "the first category is projected", func() bool { return len(m.of(1)) == 1 })
		appendTo(t, category(t, w, "bill", 1), "7", "Sent")
		eventually(t, "the later one is, too", func() bool { return len(m.of(1)) == 2 })
		projected(t, w, "everything")
		if got := m.of(1); !slices.Equal(got, []string{"bill/7@0 Sent", "order/1@0 Placed"}) {
			t.Errorf("%q", got)
		}
	})
}

// A run that is made anew takes over while events go on to come, and lacks none.
func TestARebuildTakesOverWithoutAGap(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, other := s.open(t), s.open(t)
		c := category(t, w, "order", 2)
		var m model
		var switched atomic.Int64
		p := weir.Projection{
			Name: "orders", Categories: []string{"order"}, Handler: m.handle, CommitEvery: time.Millisecond,
			TakeOver: func(_ context.Context, run int64) error {
				if switched.Add(1) == 1 {
					return errors.New("not now")
				}
				return nil
			},
		}
		project(t, w, p)
		project(t, other, p)
		ctx, stop := context.WithCancel(t.Context())
		var appending sync.WaitGroup
		var want []string
		appending.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				done, err := c.Append(t.Context(), fmt.Sprint(i%7), weir.AnyVersion, weir.NewStreamEvent{Type: "Placed"})
				if err != nil {
					t.Error(err)
					return
				}
				want = append(want, fmt.Sprintf("order/%d@%d Placed", i%7, done.First))
				if err := w.AwaitProjection(t.Context(), "orders", "order", fmt.Sprint(i%7)); err != nil { // no faster than it is projected
					t.Error(err)
					return
				}
			}
		})
		eventually(t, "the first run has begun", func() bool { return len(m.of(1)) > 10 })
		first, err := w.Projection(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.RebuildProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if err := other.RebuildProjection(t.Context(), "orders"); err != nil { // the same again
			t.Fatal(err)
		}
		eventually(t, "the second run takes over", func() bool {
			info, err := w.Projection(t.Context(), "orders")
			return err == nil && info.Run.Number == 2
		})
		stop()
		appending.Wait()
		info := projected(t, w, "orders")
		if info.Run.Number != 2 || switched.Load() < 2 {
			t.Errorf("%+v, asked %d times", info, switched.Load())
		}
		got := slices.Compact(m.of(2)) // a partition that moved to the other process may bring some again
		slices.Sort(got)
		slices.Sort(want)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("the second run has %d events, of %d that were appended", len(got), len(want))
		}
		eventually(t, "the group of the first run is deleted", func() bool {
			groups, err := w.Groups(t.Context())
			return err == nil && !slices.Contains(groups, first.Run.Group) && slices.Contains(groups, info.Run.Group)
		})
	})
}

// A program of an older version goes on with its run while a newer one makes the next, which is
// none of its business.
func TestANewVersionMakesARunOfItsOwn(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, newer := s.open(t), s.open(t)
		c := category(t, w, "order", 2)
		appendTo(t, c, "1", "Placed")
		var first, second model
		project(t, w, weir.Projection{Name: "orders", Version: 1, Categories: []string{"order"}, Handler: first.handle})
		projected(t, w, "orders")
		project(t, newer, weir.Projection{Name: "orders", Version: 2, Categories: []string{"order"}, Handler: second.handle})
		eventually(t, "version 2 takes over", func() bool {
			info, err := w.Projection(t.Context(), "orders")
			return err == nil && info.Run.Version == 2 && info.Next == nil
		})
		appendTo(t, c, "2", "Placed")
		projected(t, w, "orders")
		if got := first.numbers(); !slices.Equal(got, []int64{1}) {
			t.Errorf("version 1 worked on the runs %v", got)
		}
		if got := second.numbers(); !slices.Equal(got, []int64{2}) {
			t.Errorf("version 2 worked on the runs %v", got)
		}
		if got := second.of(2); !slices.Equal(got, []string{"order/1@0 Placed", "order/2@0 Placed"}) {
			t.Errorf("version 2 has %q", got)
		}
	})
}

// elsewhere begins streams until one is in another partition than a stream, and returns its name.
func elsewhere(t *testing.T, c *weir.Category, than string) string {
	t.Helper()
	taken, _, err := c.Place(t.Context(), than)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		name := fmt.Sprint(i)
		appendTo(t, c, name, "Placed")
		if place, is, err := c.Place(t.Context(), name); err != nil || !is {
			t.Fatal(is, err)
		} else if place != taken {
			return name
		}
	}
}

func TestAProjectionStopsAtAPoisonedEvent(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 8)
		const bad = "bad"
		appendTo(t, c, bad, "Poison")
		other := elsewhere(t, c, bad)
		var cured atomic.Bool
		var m model
		j := project(t, w, weir.Projection{
			Name: "orders", Categories: []string{"order"}, Retry: weir.Retry{Attempts: 2, First: time.Millisecond},
			Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
				if e.Type == "Poison" && !cured.Load() {
					return errors.New("cannot")
				}
				return m.handle(ctx, e)
			},
		})
		eventually(t, "the partition halts", func() bool { return len(j.Halted()) == 1 })
		appendTo(t, c, bad, "Placed")
		appendTo(t, c, other, "Again")
		eventually(t, "the others go on", func() bool {
			return slices.ContainsFunc(m.of(1), func(s string) bool { return strings.HasPrefix(s, "order/"+other+"@") && strings.HasSuffix(s, "Again") })
		})
		if got := m.of(1); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "order/bad@") }) {
			t.Errorf("it went on behind the event: %q", got)
		}
		info, err := w.Projection(t.Context(), "orders")
		if err != nil || info.Run.Lag < 2 || info.Run.Behind <= 0 {
			t.Errorf("%+v, %v, want a lag of 2 or more", info, err)
		}
		cured.Store(true)
		if err := w.ResumeProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		projected(t, w, "orders")
		if got := m.of(1); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "order/bad@") }) {
			t.Errorf("after it was resumed it has %q", got)
		}
	})
}

func TestAPausedProjectionRests(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 1)
		var m model
		p := weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle}
		j := project(t, w, p)
		appendTo(t, c, "1", "Placed")
		info := projected(t, w, "orders")
		closeProjector(t, j)
		if err := w.PauseProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		appendTo(t, c, "1", "Paid")
		project(t, w, p) // paused from its first moment on
		eventually(t, "it has joined its group", func() bool {
			g, err := w.Group(t.Context(), info.Run.Group)
			return err == nil && len(g.Members) == 1
		})
		if info, err := w.Projection(t.Context(), "orders"); err != nil || !info.Paused || info.Run.Lag != 1 || len(m.of(1)) != 1 {
			t.Errorf("%+v, %v; it has %q", info, err, m.of(1))
		}
		if err := w.ResumeProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		projected(t, w, "orders")
		if got := m.of(1); len(got) != 2 {
			t.Errorf("after it was resumed it has %q", got)
		}
	})
}

func TestWhoAwaitsAProjectionReadsWhatItWrote(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 3)
		var m model
		project(t, w, weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle, CommitEvery: time.Millisecond})
		for i := range 20 {
			stream := fmt.Sprint(i % 5)
			done := appendTo(t, c, stream, "Placed")
			if err := w.AwaitProjection(t.Context(), "orders", "order", stream); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("order/%s@%d Placed", stream, done.First); !slices.Contains(m.of(1), want) {
				t.Fatalf("%s is not there: %q", want, m.of(1))
			}
		}
		if err := w.AwaitProjection(t.Context(), "orders", "order", "never was"); err != nil {
			t.Error(err)
		}
		if err := w.PauseProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.AwaitProjection(ctx, "nothing", "order", "1"); err == nil {
			t.Error("a projection that there is not was awaited")
		}
		if err := w.AwaitProjection(t.Context(), "nothing", "order", "1"); !errors.Is(err, weir.ErrUnknownProjection) {
			t.Errorf("%v, want ErrUnknownProjection", err)
		}
	})
}

// What a handler writes in its own transaction is there once, although the handler fails after the
// commit, and before it.
func TestAProjectionWritesOnceInTheUsersTransaction(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		pool, err := pgxpool.New(t.Context(), s.url)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if _, err := pool.Exec(t.Context(), `CREATE TABLE orders (stream text, version bigint)`); err != nil {
			t.Fatal(err)
		}
		c := category(t, w, "order", 3)
		const each = 20
		for range each {
			for i := range 5 {
				appendTo(t, c, fmt.Sprint(i), "Placed")
			}
		}
		var calls atomic.Int64
		j := project(t, w, weir.Projection{
			Name: "orders", Categories: []string{"order"}, Retry: weir.Retry{Attempts: -1, First: time.Millisecond},
			Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
				n := calls.Add(1)
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, $2)`, e.Stream, e.Version); err != nil {
						return err
					}
					if err := e.CommitTx(ctx, tx); err != nil {
						return err
					}
					if n%7 == 3 {
						return errors.New("before the commit")
					}
					return nil
				})
				if err == nil && n%7 == 5 {
					return errors.New("after the commit")
				}
				return err
			},
		})
		projected(t, w, "orders")
		closeProjector(t, j)
		var rows, distinct int
		if err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT (stream, version)) FROM orders`).Scan(&rows, &distinct); err != nil {
			t.Fatal(err)
		}
		if rows != 5*each || distinct != 5*each {
			t.Errorf("%d rows, %d of them distinct, want %d", rows, distinct, 5*each)
		}
	}, "postgres")
}

func TestAProjectionReadsWhatIsAboutASubject(t *testing.T) {
	w := newSite(t, "memory").open(t)
	c := category(t, w, "customer", 1)
	for _, who := range []string{"anne", "bob"} {
		if _, err := c.Append(t.Context(), who, weir.NoStream, weir.NewStreamEvent{Type: "Named", Subject: who, Data: []byte("I am " + who)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ForgetSubject(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	got := make(chan weir.ProjectedEvent, 10)
	project(t, w, weir.Projection{Name: "customers", Categories: []string{"customer"}, Handler: func(_ context.Context, e weir.ProjectedEvent) error {
		got <- e
		return nil
	}})
	if e := next(t, got); string(e.Data) != "I am anne" || e.Erased {
		t.Errorf("%+v", e)
	}
	if e := next(t, got); e.Data != nil || !e.Erased {
		t.Errorf("of a subject that was forgotten: %+v", e)
	}
}

func TestProjectionsThatCannotBeAreRefused(t *testing.T) {
	w := newSite(t, "memory").open(t)
	category(t, w, "order", 1)
	category(t, w, "bill", 1)
	ensure(t, w, "topic", 1)
	var m model
	good := weir.Projection{Name: "orders", Version: 2, Categories: []string{"order"}, Handler: m.handle}
	project(t, w, good)
	for what, change := range map[string]func(*weir.Projection){
		"no name":               func(p *weir.Projection) { p.Name = "" },
		"a long name":           func(p *weir.Projection) { p.Name = strings.Repeat("x", 101) },
		"a name with a newline": func(p *weir.Projection) { p.Name = "a\nb" },
		"no handler":            func(p *weir.Projection) { p.Handler = nil },
		"two handlers": func(p *weir.Projection) {
			p.BatchHandler = func(context.Context, []weir.ProjectedEvent) error { return nil }
		},
		"a batch of one handler": func(p *weir.Projection) { p.MaxBatch = 10 },
		"a negative version":     func(p *weir.Projection) { p.Version = -1 },
		"no such category":       func(p *weir.Projection) { p.Categories = []string{"nothing"} },
		"a topic":                func(p *weir.Projection) { p.Categories = []string{"topic"} },
		"other categories":       func(p *weir.Projection) { p.Categories = []string{"bill"} },
	} {
		p := good
		change(&p)
		if _, err := w.Project(t.Context(), p); err == nil {
			t.Errorf("%s: it was taken", what)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q", what, err)
		}
	}
	older := good
	older.Version = 1
	project(t, w, older) // it has nothing to do
	if info, err := w.Projection(t.Context(), "orders"); err != nil || info.Run.Version != 2 || info.Next != nil {
		t.Errorf("%+v, %v", info, err)
	}
	for what, try := range map[string]func(context.Context, string) error{
		"rebuild": w.RebuildProjection, "pause": w.PauseProjection, "resume": w.ResumeProjection, "delete": w.DeleteProjection,
	} {
		if err := try(t.Context(), "nothing"); !errors.Is(err, weir.ErrUnknownProjection) {
			t.Errorf("%s of none: %v, want ErrUnknownProjection", what, err)
		}
	}
}

func TestADeletedProjectionBeginsAnew(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		appendTo(t, category(t, w, "order", 1), "1", "Placed")
		var m model
		p := weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle}
		j := project(t, w, p)
		projected(t, w, "orders")
		if err := w.DeleteProjection(t.Context(), "orders"); !errors.Is(err, weir.ErrGroupInUse) {
			t.Errorf("while it is projected: %v, want ErrGroupInUse", err)
		}
		closeProjector(t, j)
		if err := w.DeleteProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if names, err := w.Projections(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("%q, %v", names, err)
		}
		project(t, w, p)
		projected(t, w, "orders")
		if got := m.of(1); !slices.Equal(got, []string{"order/1@0 Placed", "order/1@0 Placed"}) {
			t.Errorf("%q", got)
		}
	})
}

// Records that are no events of streams, from before a category took none, lie between those that a
// batch handler gets, which says which one failed.
func TestABatchOfAProjectionGoesOnAtTheEventThatFailed(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 1)
		at := must(w.Core().Topic(t.Context(), "order")).Partitions[0]
		var want []string
		for i := range 20 {
			name := fmt.Sprint(i)
			must(w.Core().Publish(t.Context(), at, batch.Record{Value: []byte("not an event")}))
			done := appendTo(t, c, name, "Placed")
			want = append(want, fmt.Sprintf("order/%s@%d Placed", name, done.First))
		}
		var m model
		var sizes []int
		project(t, w, weir.Projection{
			Name: "orders", Categories: []string{"order"}, MaxBatch: 7, Retry: weir.Retry{First: time.Millisecond},
			BatchHandler: func(ctx context.Context, events []weir.ProjectedEvent) error {
				sizes = append(sizes, len(events))
				for i, e := range events {
					if i == 2 && e.Attempt == 1 {
						return weir.FailedAt(i, errors.New("the third fails at first"))
					}
					if err := m.handle(ctx, e); err != nil {
						return err
					}
				}
				return nil
			},
		})
		projected(t, w, "orders")
		m.mu.Lock()
		got := slices.Clone(m.runs[1])
		m.mu.Unlock()
		if !slices.Equal(got, want) {
			t.Errorf("it got %q, want %q", got, want)
		}
		if slices.Max(sizes) > 7 || slices.Max(sizes) < 2 {
			t.Errorf("batches of %v events, and MaxBatch is 7", sizes)
		}
	})
}

// What a projection reads is a part of its version: an older program goes on with the categories of
// its own.
func TestEachVersionReadsItsOwnCategories(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, newer := s.open(t), s.open(t)
		orders, bills := category(t, w, "order", 1), category(t, w, "bill", 1)
		appendTo(t, orders, "1", "Placed")
		var first, second model
		project(t, w, weir.Projection{Name: "sales", Version: 1, Categories: []string{"order"}, Handler: first.handle})
		projected(t, w, "sales")
		ready := make(chan struct{})
		project(t, newer, weir.Projection{
			Name: "sales", Version: 2, Categories: []string{"bill"}, Handler: second.handle,
			TakeOver: func(ctx context.Context, _ int64) error {
				select {
				case <-ready:
					return nil
				default:
					return errors.New("not yet")
				}
			},
		})
		appendTo(t, bills, "7", "Sent")
		appendTo(t, orders, "1", "Paid")
		eventually(t, "version 1 has all of its category", func() bool { return len(first.of(1)) == 2 })
		eventually(t, "version 2 has all of its category", func() bool { return len(second.of(2)) == 1 })
		close(ready)
		eventually(t, "version 2 takes over", func() bool {
			info, err := w.Projection(t.Context(), "sales")
			return err == nil && info.Run.Version == 2
		})
		if got := first.of(1); !slices.Equal(got, []string{"order/1@0 Placed", "order/1@1 Paid"}) {
			t.Errorf("version 1 has %q", got)
		}
		if got := second.of(2); !slices.Equal(got, []string{"bill/7@0 Sent"}) {
			t.Errorf("version 2 has %q", got)
		}
	})
}

// tookOver waits until a run is the one that readers use.
func tookOver(t *testing.T, w *weir.Log, name string, run int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("run %d of projection %s takes over", run, name), func() bool {
		info, err := w.Projection(t.Context(), name)
		return err == nil && info.Run.Number == run && info.Next == nil
	})
}

// The group of a run that was given up is left behind. A projection that is deleted and begins anew
// has runs of the same numbers, which read everything.
func TestNoRunGoesOnWhereAnotherWas(t *testing.T) {
	w := newSite(t, "memory").open(t)
	appendTo(t, category(t, w, "order", 1), "1", "Placed")
	var m model
	p := weir.Projection{Name: "orders", Version: 1, Categories: []string{"order"}, Handler: m.handle}
	j := project(t, w, p)
	projected(t, w, "orders")
	closeProjector(t, j)
	caughtUp := make(chan struct{}, 100)
	p.Version, p.TakeOver = 2, func(context.Context, int64) error {
		caughtUp <- struct{}{}
		return errors.New("not yet")
	}
	j = project(t, w, p)
	next(t, caughtUp)
	closeProjector(t, j)
	p.Version, p.TakeOver = 3, nil
	j = project(t, w, p)
	tookOver(t, w, "orders", 3)
	closeProjector(t, j)
	if err := w.DeleteProjection(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	var anew model
	p.Handler = anew.handle
	project(t, w, p)
	projected(t, w, "orders")
	if err := w.RebuildProjection(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	tookOver(t, w, "orders", 2)
	for run := range int64(2) {
		if got := anew.of(run + 1); !slices.Equal(got, []string{"order/1@0 Placed"}) {
			t.Errorf("run %d has %q", run+1, got)
		}
	}
}

// TakeOver takes its time, and the present run goes on: the next one does not take over before it
// has that, too.
func TestARunThatFellBackDuringTakeOverCatchesUpFirst(t *testing.T) {
	w := newSite(t, "memory").open(t)
	c := category(t, w, "order", 1)
	appendTo(t, c, "1", "Placed")
	held, returned, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var m model
	var asked atomic.Int64
	project(t, w, weir.Projection{
		Name: "orders", Categories: []string{"order"}, CommitEvery: time.Millisecond,
		Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
			if e.Run == 2 && e.Type == "Paid" {
				close(held)
				<-release
			}
			return m.handle(ctx, e)
		},
		TakeOver: func(ctx context.Context, _ int64) error {
			if asked.Add(1) > 1 {
				return nil
			}
			defer close(returned)
			if _, err := c.Append(ctx, "1", weir.AnyVersion, weir.NewStreamEvent{Type: "Paid"}); err != nil {
				return err
			}
			<-held
			eventually(t, "the present run has it", func() bool { i, err := w.Projection(ctx, "orders"); return err == nil && i.Run.Lag == 0 })
			return nil
		},
	})
	projected(t, w, "orders")
	if err := w.RebuildProjection(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	next(t, returned)
	for range 500 { // calls of the store, which take longer than the projector needs
		if info, err := w.Projection(t.Context(), "orders"); err != nil || info.Run.Number != 1 {
			t.Fatalf("%+v, %v: the second run lacks an event that readers had", info, err)
		}
	}
	close(release)
	tookOver(t, w, "orders", 2)
	if got := m.of(2); len(got) != 2 {
		t.Errorf("run 2 has %q", got)
	}
}

func TestCloseEndsAProjectionWhoseTakeOverHangs(t *testing.T) {
	w := newSite(t, "memory").open(t)
	c := category(t, w, "order", 1)
	appendTo(t, c, "1", "Placed")
	release, called := make(chan struct{}), make(chan struct{}, 10)
	var m model
	j, err := w.Project(t.Context(), weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle, TakeOver: func(context.Context, int64) error {
		called <- struct{}{}
		<-release
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer close(release)
	projected(t, w, "orders")
	if err := w.RebuildProjection(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	next(t, called)
	info, err := w.Projection(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := j.Close(ctx); err == nil || !strings.Contains(err.Error(), "TakeOver") {
		t.Errorf("close: %v, want an error that names TakeOver", err)
	}
	eventually(t, "its consumers have left", func() bool {
		g, err := w.Group(t.Context(), info.Run.Group)
		return err == nil && len(g.Members) == 0
	})
}

func TestAPanicOfTakeOverIsAnError(t *testing.T) {
	w := newSite(t, "memory").open(t)
	appendTo(t, category(t, w, "order", 1), "1", "Placed")
	var m model
	var calls atomic.Int64
	project(t, w, weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle, TakeOver: func(context.Context, int64) error {
		if calls.Add(1) == 1 {
			panic("oops")
		}
		return nil
	}})
	projected(t, w, "orders")
	if err := w.RebuildProjection(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	tookOver(t, w, "orders", 2)
}

func TestAProjectionGoesOnBehindADeadLetter(t *testing.T) {
	w := newSite(t, "memory").open(t)
	c := category(t, w, "order", 1)
	appendTo(t, c, "1", "Poison", "Placed")
	var m model
	project(t, w, weir.Projection{
		Name: "orders", Categories: []string{"order"}, Retry: weir.Retry{Attempts: 1}, DeadLetter: weir.ToDeadLetterTopic,
		Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
			if e.Type == "Poison" {
				return errors.New("cannot")
			}
			return m.handle(ctx, e)
		},
	})
	projected(t, w, "orders")
	if got := m.of(1); !slices.Equal(got, []string{"order/1@1 Placed"}) {
		t.Errorf("it has %q", got)
	}
	var dead seen
	consume(t, w, weir.Subscription{Group: "dead", Topics: []string{weir.DeadLetterTopic("order")}, Handler: dead.note})
	if e := dead.wait(t, 1)[0]; string(e.Value) != "Poison of 1" {
		t.Errorf("the dead letter is %q", e.Value)
	}
}
