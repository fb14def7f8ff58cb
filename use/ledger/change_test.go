package ledger_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/ledger"
)

// plus adds n to a number in the key, with Change. It counts the calls of decide.
func plus(ctx context.Context, log ledger.Log, n int, calls *int) (eventlog.KeyValue, error) {
	return ledger.Change(ctx, log, key, func(now eventlog.KeyValue) ([]byte, eventlog.Entry, error) {
		*calls++
		has, err := strconv.Atoi("0" + string(now.Value))
		return strconv.AppendInt(nil, int64(has+n), 10), eventlog.Entry{}, err
	})
}

func TestAChangeIsDecidedAgainWhenAnotherComesFirst(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a, calls := begin(t, s, "a", nil), 0
		var others int
		s.then(after(func() {
			if _, err := plus(t.Context(), a.log, 10, &others); err != nil {
				t.Error(err)
			}
		}, committed))
		kv, err := plus(t.Context(), begin(t, s, "b", nil).log, 1, &calls)
		if err != nil || string(kv.Value) != "11" || calls != 2 {
			t.Errorf("%+v, %v after %d calls", kv, err, calls)
		}
		if now, err := a.log.Get(t.Context(), key); err != nil || now.Version != kv.Version || string(now.Value) != "11" {
			t.Errorf("the store has %+v, %v", now, err)
		}
	})
}

func TestAChangeFindsOutWhetherItWasMade(t *testing.T) {
	for name, c := range map[string]struct {
		then   func(other func()) []commitFunc
		unsure bool
		want   string
	}{
		"it was":                             {func(func()) []commitFunc { return []commitFunc{lost} }, false, "1"},
		"it was not":                         {func(func()) []commitFunc { return []commitFunc{dropped} }, false, "1"},
		"the answer is lost twice":           {func(func()) []commitFunc { return []commitFunc{dropped, lost} }, true, "1"},
		"another came first":                 {func(other func()) []commitFunc { return []commitFunc{after(other, dropped), committed} }, true, "10"},
		"another came after it":              {func(other func()) []commitFunc { return []commitFunc{then(lost, other), committed} }, true, "11"},
		"another came while it was repeated": {func(other func()) []commitFunc { return []commitFunc{dropped, after(other, committed)} }, true, "10"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, s *store) {
				a, b := begin(t, s, "a", nil), begin(t, s, "b", nil)
				s.then(c.then(func() {
					if _, err := plus(t.Context(), b.log, 10, new(int)); err != nil {
						t.Error(err)
					}
				})...)
				_, err := plus(t.Context(), a.log, 1, new(int))
				if errors.Is(err, eventlog.ErrUnsure) != c.unsure || err != nil && !c.unsure {
					t.Errorf("%v; nobody can tell: %v", err, c.unsure)
				}
				if now, err := a.log.Get(t.Context(), key); err != nil || string(now.Value) != c.want {
					t.Errorf("the store has %+v, %v, want %s", now, err, c.want)
				}
			})
		})
	}
}

// If the repetition is refused because of another key, neither was made, nor will be.
func TestAChangeThatIsNotMadeBecauseOfAnotherKeyIsDecidedAgain(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a, calls := begin(t, s, "a", nil), 0
		s.then(after(func() {
			if _, err := s.Store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: "other", Version: 1, Value: []byte("x")}}}}); err != nil {
				t.Error(err)
			}
		}, dropped))
		_, err := ledger.Change(t.Context(), a.log, key, func(eventlog.KeyValue) ([]byte, eventlog.Entry, error) {
			calls++
			other, err := a.log.Get(t.Context(), "other")
			return []byte("1"), eventlog.Entry{Checks: []eventlog.Check{{Key: "other", Version: other.Version}}}, err
		})
		if err != nil || calls != 2 {
			t.Errorf("%v after %d calls", err, calls)
		}
		s.has(t, 1)
	})
}

func TestAChangeThatIsNoneCostsNoCommit(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a := begin(t, s, "a", nil)
		if _, err := plus(t.Context(), a.log, 1, new(int)); err != nil {
			t.Fatal(err)
		}
		before := s.commits.Load()
		kv, err := ledger.Change(t.Context(), a.log, key, func(eventlog.KeyValue) ([]byte, eventlog.Entry, error) {
			return nil, eventlog.Entry{}, ledger.ErrUnchanged
		})
		if err != nil || string(kv.Value) != "1" || s.commits.Load() != before {
			t.Errorf("%+v, %v, %d commits", kv, err, s.commits.Load()-before)
		}
		for range 2 { // to delete it is a change once
			kv, err = ledger.Change(t.Context(), a.log, key, func(now eventlog.KeyValue) (value []byte, with eventlog.Entry, err error) {
				if now.Version == 0 {
					err = ledger.ErrUnchanged
				}
				return nil, with, err
			})
			if err != nil || kv.Value != nil {
				t.Errorf("%+v, %v", kv, err)
			}
		}
		if now, err := a.log.Get(t.Context(), key); err != nil || now.Version != 0 {
			t.Errorf("the store has %+v, %v", now, err)
		}
	})
}
