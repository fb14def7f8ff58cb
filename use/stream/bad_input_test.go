package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

func TestWhatCannotBeAppendedIsRefusedWithItsReason(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		good := stream.NewEvent{Type: "t"}
		many := make([]stream.NewEvent, 10_001)
		for i := range many {
			many[i] = good
		}
		for name, bad := range map[string]struct {
			stream   string
			expected stream.Expected
			events   []stream.NewEvent
			says     string
		}{
			"no name":              {"", 0, []stream.NewEvent{good}, "empty"},
			"a long name":          {strings.Repeat("x", 1<<20), 0, []stream.NewEvent{good}, "1048576 bytes; at most 255"},
			"a name not in UTF-8":  {"\xff", 0, []stream.NewEvent{good}, "UTF-8"},
			"a name with NUL":      {"a\x00b", 0, []stream.NewEvent{good}, "control characters"},
			"a negative version":   {"s", -4, []stream.NewEvent{good}, "-4"},
			"no events":            {"s", 0, nil, "1 to 10000"},
			"too many events":      {"s", 0, many, "10001"},
			"no type":              {"s", 0, []stream.NewEvent{good, {}}, "type of event 1"},
			"a long type":          {"s", 0, []stream.NewEvent{{Type: strings.Repeat("x", 256)}}, "256 bytes; at most 255"},
			"a type of weir's own": {"s", 0, []stream.NewEvent{{Type: "weir.deleted"}}, "reserved"},
			"a long id":            {"s", 0, []stream.NewEvent{{Type: "t", ID: strings.Repeat("x", 129)}}, "129 bytes; at most 128"},
			"an id twice":          {"s", 0, []stream.NewEvent{{Type: "t", ID: "a"}, {Type: "t", ID: "a"}}, "id of event 1"},
			"metadata of weir's":   {"s", 0, []stream.NewEvent{{Type: "t", Metadata: []batch.RecordHeader{{Key: "weir.event.id"}}}}, "reserved"},
			"the year 10000":       {"s", 0, []stream.NewEvent{{Type: "t", Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}, "9999"},
			"the year 1969":        {"s", 0, []stream.NewEvent{{Type: "t", Time: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)}}, "1970"},
		} {
			_, err := c.Append(t.Context(), bad.stream, bad.expected, bad.events...)
			var invalid *eventlog.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), bad.says) || len(err.Error()) > 1000 {
				t.Errorf("%s: %v, want an InvalidError that says %q", name, err, bad.says)
			}
			if bad.events == nil || bad.stream == "s" && bad.expected == 0 {
				continue
			}
			if _, err := c.State(t.Context(), bad.stream); bad.stream != "s" && !errors.As(err, &invalid) {
				t.Errorf("%s: the state: %v", name, err)
			}
			if _, err := c.Delete(t.Context(), bad.stream, bad.expected); !errors.As(err, &invalid) {
				t.Errorf("%s: deleted: %v", name, err)
			}
		}
		if _, err := c.Append(t.Context(), "s", 0, stream.NewEvent{Type: "t", Data: make([]byte, 20<<20)}); !errors.Is(err, eventlog.ErrTooLarge) || !strings.Contains(err.Error(), "max.message.bytes") {
			t.Errorf("an event of 20 MiB: %v", err)
		}
		if state, err := c.State(t.Context(), "s"); err != nil || state.Version != 0 {
			t.Errorf("after all that the stream is %+v, %v", state, err)
		}
	})
}

// What is at a limit is taken, and comes back as it was.
func TestTheLargestAndTheOddestComeBack(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		name := strings.Repeat("%", 126) + "/ä/"
		events := []stream.NewEvent{
			{ID: strings.Repeat("i", 128), Type: strings.Repeat("ü", 127), Data: make([]byte, 900_000)},
			{Type: "/", Data: []byte{0, 255}, Metadata: []batch.RecordHeader{{Key: "", Value: nil}, {Key: "a", Value: []byte{0}}, {Key: "a", Value: []byte{1}}}},
			{Type: "empty"},
		}
		_, err := c.Append(t.Context(), name, 0, events...)
		check(t, err)
		i := 0
		for e, err := range c.Events(t.Context(), name, stream.Range{}) {
			check(t, err)
			if want := events[i]; e.Stream != name || e.Type != want.Type || string(e.Data) != string(want.Data) || len(e.Metadata) != len(want.Metadata) || want.ID != "" && e.ID != want.ID {
				t.Errorf("event %d has come back as another", i)
			}
			i++
		}
		if i != 3 {
			t.Errorf("%d events", i)
		}
	})
}

// No stream is reached by the name of another.
func TestNamesThatLookAlikeAreOtherStreams(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		alike := []string{"a", "a/", "a/0", "a/0000000000000000000", "A", "a%2F", "a%252F", "a b", "a+b", "ä", "a\u0308", "a/../a", "."}
		for _, name := range alike {
			_, err := c.Append(t.Context(), name, stream.NoStream, plain(name)...)
			check(t, err)
		}
		for _, name := range alike {
			if got := read(t, c, name, stream.Range{}); len(got) != 1 || got[0] != name {
				t.Errorf("stream %q has %q", name, got)
			}
		}
	})
}

func TestCategoriesAreTopicsOfTheirOwn(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		if _, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders"}); !errors.Is(err, stream.ErrCategoryExists) {
			t.Errorf("created twice: %v", err)
		}
		used, err := p.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "used", Partitions: 1})
		check(t, err)
		_, err = p.log.Publish(t.Context(), used.Partitions[0], batch.Record{Value: []byte("x")})
		check(t, err)
		if _, err := p.CreateCategory(t.Context(), stream.Spec{Name: "used"}); !errors.Is(err, stream.ErrCategoryExists) {
			t.Errorf("a topic with records: %v", err)
		}
		for _, name := range []string{"used", "none"} {
			if _, err := p.Category(t.Context(), name); !errors.Is(err, stream.ErrUnknownCategory) {
				t.Errorf("category %s: %v", name, err)
			}
		}
		var invalid *eventlog.InvalidError
		for _, spec := range []stream.Spec{{Name: ""}, {Name: "a/b"}, {Name: "__weir_x"}, {Name: "x", Partitions: -1}, {Name: "x", Settings: map[string]string{"no": "such"}}} {
			if _, err := p.CreateCategory(t.Context(), spec); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v, want an InvalidError", spec, err)
			}
		}
		_, err = c.Append(t.Context(), "s", 0, plain("a")...)
		check(t, err)
		check(t, p.log.DeleteTopic(t.Context(), "orders"))
		if _, err := c.Append(t.Context(), "s", 1, plain("b")...); !errors.Is(err, stream.ErrUnknownCategory) {
			t.Errorf("appended to a category that was deleted: %v", err)
		}
		again, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders"})
		check(t, err)
		if state, err := again.State(t.Context(), "s"); err != nil || state.Version != 0 {
			t.Errorf("a category of the same name has the stream of the deleted one: %+v, %v", state, err)
		}
	})
}

// A caller that gives up hears whether its append can still happen.
func TestACallerThatGivesUpHearsWhetherItHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		_, c := orders(t, func(*testing.T) eventlog.Store { return store })
		_, err := c.Append(t.Context(), "s", 0, plain("a")...)
		check(t, err)
		hold := make(chan struct{})
		store.hold.Store(&hold)
		errs := make([]error, 2)
		for i := range errs {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2-i)*time.Minute)
			defer cancel()
			go func() { _, errs[i] = c.Append(ctx, "s", stream.Any, plain(fmt.Sprint(i))...) }()
			synctest.Wait()
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if !errors.Is(errs[0], eventlog.ErrUnsure) {
			t.Errorf("the one on its way: %v, want ErrUnsure", errs[0])
		}
		if !errors.Is(errs[1], eventlog.ErrUnavailable) || errors.Is(errs[1], eventlog.ErrUnsure) {
			t.Errorf("the one that waited: %v, want ErrUnavailable", errs[1])
		}
		close(hold)
		synctest.Wait()
		if got := read(t, c, "s", stream.Range{}); strings.Join(got, "") != "a0" {
			t.Errorf("the stream has %q", got)
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Append(done, "s", stream.Any, plain("b")...); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("a call that is over: %v", err)
		}
	})
}

// A changed bit of an event is an error, and never an event.
func TestADamagedEventIsNotRead(t *testing.T) {
	store := memory.New()
	p, c := orders(t, func(*testing.T) eventlog.Store { return store })
	_, err := c.Append(t.Context(), "s", 0, plain("a", "b", "c")...)
	check(t, err)
	var damaged eventlog.KeyValue
	check(t, p.log.ListAll(t.Context(), "stream/event/", func(kv eventlog.KeyValue) error {
		if strings.HasSuffix(kv.Key, "1") {
			damaged = kv
		}
		return nil
	}))
	damage := func(value []byte) {
		_, err := p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: damaged.Key, Version: damaged.Version, Value: value}}})
		check(t, err)
	}
	for at := 16; at < len(damaged.Value)-4; at += 7 {
		value := []byte(string(damaged.Value))
		value[at]++
		damage(value)
		readOnly(t, c, "a", "damaged")
	}
	damage([]byte{1})
	readOnly(t, c, "a", "damaged")
	damage(nil)
	readOnly(t, c, "", "missing")
}

// readOnly sees that a stream's events are read up to an error.
func readOnly(t *testing.T, c *stream.Category, want, says string) {
	t.Helper()
	got, failed := "", error(nil)
	for e, err := range c.Events(t.Context(), "s", stream.Range{}) {
		if failed = err; err != nil {
			break
		}
		got += string(e.Data)
	}
	if failed == nil || !strings.Contains(failed.Error(), says) || !strings.HasPrefix(want, got) {
		t.Errorf("read %q and the error %v, want an error that says %s", got, failed, says)
	}
}
