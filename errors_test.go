package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// A group whose members divide the partitions by themselves takes none of this library's.
func TestAGroupThatAssignsByItselfIsNotShared(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		broker := group.New(w.Core(), group.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- broker.Run(ctx) }()
		defer func() {
			cancel()
			<-stopped
		}()
		in, err := broker.Join(t.Context(), group.Join{Group: "billing", ClientID: "kafka", Session: 10 * time.Second, ProtocolType: "consumer",
			Protocols: []group.Protocol{{Name: "stream"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := broker.Sync(t.Context(), group.Sync{Group: "billing", Member: in.Member, Generation: in.Generation, Assignments: map[string][]byte{in.Member: nil}}); err != nil {
			t.Fatal(err)
		}
		_, err = w.Consume(t.Context(), weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: fails})
		if !errors.Is(err, weir.ErrMixedGroup) {
			t.Errorf("in a group of Kafka Streams: %v, want ErrMixedGroup", err)
		}
	})
}

// elusive is a store in which an idempotency key is there whenever it must not be, and is not
// whenever it is looked for.
type elusive struct{ eventlog.Store }

func (s elusive) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if !slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Checks, func(c eventlog.Check) bool { return strings.HasPrefix(c.Key, "publish/once/") })
	}) {
		return s.Store.Commit(ctx, flush)
	}
	out := make([]eventlog.Outcome, len(flush))
	for i := range out {
		out[i].Err = eventlog.ErrStale
	}
	return out, nil
}

func TestAKeyThatOthersAreBusyWithIsToldAsSuch(t *testing.T) {
	w := site{memory: elusive{memory.New()}}.open(t)
	ensure(t, w, "orders", 1)
	if _, _, err := w.PublishOnce(t.Context(), "key", events("orders", "v")...); !errors.Is(err, weir.ErrInProgress) {
		t.Errorf("a key that comes and goes: %v, want ErrInProgress", err)
	}
	if there, err := w.Bounds(t.Context(), "orders"); err != nil || there[0].Next != 0 {
		t.Errorf("something was published: %+v, %v", there, err)
	}
}
