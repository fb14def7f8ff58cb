package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/internal/simbucket"
)

const (
	putBackProcesses = 3
	putBackLength    = 10 * time.Second // of what processes do; then all are asked what they know
	copyEvery        = 100 * time.Millisecond
	copyOldest       = 3 * time.Second
	clocksApart      = 3 * time.Second // by how much two processes' knowledge of the server's time differs, at most
)

// Processes write one bucket, and it is put back to a copy that is 0.2 to 3 s old. Requests are
// slow,
// answers of PUTs are lost, a process is killed and another one starts. Whatever was acknowledged
// to a
// call that began after the last copy was put back is there, all processes agree, and a new one
// opens
// the store.
func TestPutBacksUnderProcessesThatWrite(t *testing.T) {
	for _, n := range seed.Histories(t, 150) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPutBacks(t, n).run() })
		})
	}
}

// putBacks is one history. Time is that of a synctest bubble.
type putBacks struct {
	t      *testing.T
	bucket *simbucket.Memory
	copies []map[string]stored // one each copyEvery, the newest last

	mu      sync.Mutex // guards all below
	random  *rand.Rand
	acked   map[string]time.Time // by key: when the call began
	restore time.Time            // when a copy was put back last
	told    []string             // what happened, for a failure
	stores  [putBackProcesses]*Store
	lines   [putBackProcesses]*line
	opened  []*Store
	failure string // the first
}

func newPutBacks(t *testing.T, seed uint64) *putBacks {
	return &putBacks{t: t, bucket: &simbucket.Memory{}, random: rand.New(rand.NewPCG(seed, 0)), acked: map[string]time.Time{}}
}

func (h *putBacks) chance(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

func (h *putBacks) upTo(most time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.random.Int64N(int64(most)))
}

func (h *putBacks) tell(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, fmt.Sprintf("%v ", time.Now().Format("05.000"))+fmt.Sprintf(format, args...))
}

var voidName = regexp.MustCompile("void/[0-9]+-[0-9a-f]+")

func pass(d time.Duration) { <-time.After(d) }

// line is the bucket as one process reaches it.
type line struct {
	simbucket.Line
	once sync.Once
	dead chan struct{}
}

// reach returns a new line. slow is the longest that a request takes on its way.
func (h *putBacks) reach(slow time.Duration) *line {
	l := &line{dead: make(chan struct{})}
	l.Line = simbucket.Line{
		Of: h.bucket, Dead: l.dead,
		Awake: func(context.Context) error {
			if l.killed() {
				return simbucket.ErrLost
			}
			return nil
		},
		Later: func(do func()) { go do() },
		Fate: func(r simbucket.Request) simbucket.Fate {
			f := simbucket.Fate{There: h.upTo(slow), Back: h.upTo(slow)}
			if r.Verb != "PUT" || strings.HasPrefix(r.Key, "probe/") {
				return f
			}
			switch h.chance(25) {
			case 0:
				f.Stops = simbucket.ErrLost
			case 1:
				f.Silent = true
			case 2: // it arrives late
				f.There = h.upTo(time.Second)
				f.GivesUp = h.upTo(f.There + 1)
			}
			return f
		},
	}
	return l
}

func (l *line) killed() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

func (l *line) kill() { l.once.Do(func() { close(l.dead) }) }

// open starts process i. It is refused while requests are lost, so it is tried again. It is also
// refused
// while nothing shows that a commit of a process that was killed is void: then another process,
// which
// lives and commits, shows it. If none does, whoever put the copy back says so.
func (h *putBacks) open(i int) (*Store, error) {
	var last error
	gaps := map[string]time.Time{} // by the mark that would end one: when it was met first
	shown := map[string]bool{}     // it was void for long by the time of later commits
	at := quick
	at.verify = []time.Duration{0, time.Second, time.Hour}[h.chance(3)]
	for range 40 {
		pass(200 * time.Millisecond)
		clock := &clock{}
		l := h.reach([]time.Duration{20, 60, 400}[h.chance(3)] * time.Millisecond)
		s, err := open(h.t.Context(), at, given{l, clock}, clock, Options{Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			h.mu.Lock()
			h.stores[i], h.lines[i], h.opened = s, l, append(h.opened, s)
			h.mu.Unlock()
			h.tell("%d opened at %d", i, s.st.number)
			return s, nil
		}
		last = err
		if !errors.Is(err, errGap) {
			continue
		}
		mark := voidName.FindString(err.Error())
		if shown[mark] {
			return nil, fmt.Errorf("later commits show that a commit is void: %w", err)
		}
		if gaps[mark].IsZero() {
			gaps[mark] = time.Now()
		}
		h.mu.Lock()
		living := slices.DeleteFunc(slices.Clone(h.stores[:]), func(s *Store) bool { return s == nil })
		h.mu.Unlock()
		for _, s := range living {
			later := time.Since(gaps[mark]) > clocksApart
			if h.commit(s, fmt.Sprint("heartbeat ", time.Now().UnixMilli())) && later {
				shown[mark] = true
			}
		}
		if len(living) == 0 {
			_, _ = h.bucket.Put(h.t.Context(), mark, nil)
			h.tell("%s is put", mark)
		}
	}
	return nil, last
}

func (h *putBacks) run() {
	var all sync.WaitGroup
	end := make(chan struct{})
	first, err := h.open(0)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range 10 {
		h.commit(first, fmt.Sprint("first ", i))
	}
	for i := 1; i < putBackProcesses; i++ {
		if _, err := h.open(i); err != nil {
			h.t.Fatal(err)
		}
	}
	all.Go(func() { h.copy(end) })
	for i := range putBackProcesses {
		all.Go(func() { h.process(i, end) })
	}
	all.Go(h.harm)
	pass(putBackLength)
	close(end)
	all.Wait()
	if h.failure == "" {
		h.judge()
	}
	for _, s := range h.opened {
		_ = s.Close()
	}
	pass(5 * time.Second) // what arrives late
	synctest.Wait()
	if h.failure != "" {
		h.t.Errorf("%s\n%s", h.failure, strings.Join(h.told, "\n"))
	}
}

func (h *putBacks) copy(end chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(copyEvery):
		}
		copied := h.bucket.Copy()
		h.mu.Lock()
		h.copies = append(h.copies, copied)
		h.copies = h.copies[max(0, len(h.copies)-int(copyOldest/copyEvery)):]
		h.mu.Unlock()
	}
}

// process commits, with pauses, in which it falls behind.
func (h *putBacks) process(i int, end chan struct{}) {
	pauses := []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[h.chance(3)]
	for n := 0; ; n++ {
		select {
		case <-end:
			return
		case <-time.After(h.upTo(pauses)):
		}
		h.mu.Lock()
		s, l := h.stores[i], h.lines[i]
		h.mu.Unlock()
		if s == nil || l.killed() {
			continue
		}
		switch h.chance(12) {
		case 0:
			err := s.snapshot(h.t.Context())
			h.tell("%d wrote a snapshot: %v", i, err)
		default:
			h.commit(s, fmt.Sprintf("%d/%d", i, n))
		}
	}
}

func (h *putBacks) commit(s *Store, key string) bool {
	began := time.Now()
	out, err := s.Commit(h.t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(key)}}}})
	s.mu.Lock()
	number, tip := s.st.number, s.st.tip
	s.mu.Unlock()
	h.tell("%s: %v; at %d (%d %x)", key, err, number, tip.number, tip.hash[:3])
	if errors.Is(err, eventlog.ErrRewound) {
		_, _, _ = s.Changes(h.t.Context(), eventlog.Mark{})
	}
	if err != nil || out[0].Err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked[key] = began
	return true
}

// harm puts copies back, and kills.
func (h *putBacks) harm() {
	pass(copyOldest)
	for range 1 + h.chance(2) {
		pass(h.upTo(3 * time.Second))
		h.mu.Lock()
		back := min(2+h.random.IntN(int(copyOldest/copyEvery)-1), len(h.copies))
		copied := h.copies[len(h.copies)-back]
		h.mu.Unlock()
		h.bucket.PutBack(copied)
		h.mu.Lock()
		h.restore = time.Now()
		h.mu.Unlock()
		h.tell("a copy is put back that has %d commits", len(h.bucket.Keys("commit/")))
		if h.chance(3) > 0 {
			continue
		}
		pass(h.upTo(400 * time.Millisecond))
		i := h.chance(putBackProcesses)
		h.mu.Lock()
		s, l := h.stores[i], h.lines[i]
		h.stores[i] = nil
		h.mu.Unlock()
		if s == nil {
			continue
		}
		l.kill()
		h.tell("%d is killed", i)
		_ = s.Close()
		if _, err := h.open(i); err != nil {
			h.fail("a process cannot start again: %v", err)
		}
	}
}

func (h *putBacks) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = cmp.Or(h.failure, fmt.Sprintf(format, args...))
}

// judge asks all processes, and one that starts, what is there.
func (h *putBacks) judge() {
	pass(5 * time.Second)
	for i, s := range h.stores {
		if s == nil {
			continue
		}
		done := false
		for n := 0; n < 30 && !done; n++ {
			done = h.commit(s, fmt.Sprintf("last %d/%d", i, n))
		}
		if !done {
			h.fail("%d cannot commit", i)
			return
		}
	}
	stores := h.stores
	anew, err := h.open(0)
	if err != nil {
		h.fail("the store cannot be opened: %v", err)
		return
	}
	want := h.keys(anew)
	for key, began := range h.acked {
		if _, there := slices.BinarySearch(want, key); !there && began.After(h.restore) {
			h.fail("%q was acknowledged, and is lost; there is %q", key, want)
			h.dump()
		}
	}
	for i, s := range stores {
		if s == nil {
			continue
		}
		if got := h.keys(s); !slices.Equal(got, want) {
			h.fail("%d has %q, and a new process %q", i, got, want)
		}
	}
}

// dump tells what the bucket holds.
func (h *putBacks) dump() {
	all := h.bucket.Copy()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if c, of, err := decodeCommit(all[key].Body); err == nil {
			h.tell("%s %x on %x", key, of[:3], c.previous[:3])
		} else {
			h.tell("%s", key)
		}
	}
}

func (h *putBacks) keys(s *Store) (keys []string) {
	var err error
	for range 30 {
		_, _, _ = s.Changes(h.t.Context(), eventlog.Mark{})
		var found []eventlog.KeyValue
		if found, err = s.List(h.t.Context(), "", "", 10_000); err == nil {
			for _, kv := range found {
				keys = append(keys, kv.Key)
			}
			return keys
		}
	}
	h.fail("the keys cannot be listed: %v", err)
	return nil
}
