package quota_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/quota"
)

// blind lists nothing: who asks it has read before all others wrote.
type blind struct{ eventlog.Store }

func (blind) List(context.Context, string, string, int) ([]eventlog.KeyValue, error) { return nil, nil }

// Callers of Change that do not know of each other can exceed the limit. Each quota that they made
// is listed.
func TestQuotasBeyondTheLimitAreKnown(t *testing.T) {
	store := memory.New()
	racing := quotasOf(blind{store})
	const callers = 5
	for caller := range callers {
		var changes []quota.Change
		for i := range quota.EntitiesMax {
			changes = append(changes, quota.Change{Entity: quota.Entity{User: quota.Named(fmt.Sprintf("u%d-%d", caller, i))},
				Set: map[quota.Kind]float64{quota.ProducerByteRate: 1}})
		}
		if err := errors.Join(racing.Change(t.Context(), changes)...); err != nil {
			t.Fatal(err)
		}
	}
	list, err := quotasOf(store).List(t.Context(), quota.FilterOf(quota.Entity{}))
	if err != nil || len(list) != callers*quota.EntitiesMax {
		t.Errorf("%d of %d quotas are listed, %v", len(list), callers*quota.EntitiesMax, err)
	}
}
