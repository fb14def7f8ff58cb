package user_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/user"
)

// blind lists nothing: who asks it has read before all others wrote.
type blind struct{ eventlog.Store }

func (blind) List(context.Context, string, string, int) ([]eventlog.KeyValue, error) { return nil, nil }

// Callers of Change that do not know of each other can exceed the limit. Each user that they added
// is listed, and can be deleted.
func TestUsersBeyondTheLimitAreKnown(t *testing.T) {
	store, c := memory.New(), map[user.Mechanism]user.Credential{user.SHA256: credential(t, user.SHA256, "long enough")}
	racing := usersOf(blind{store})
	const added = 3000
	for i := range added {
		set(t, racing, user.Change{Name: fmt.Sprintf("u%04d", i), Create: true, Set: c})
	}
	users := usersOf(store)
	list, err := users.List(t.Context())
	if err != nil || len(list) != added {
		t.Errorf("%d of %d users are listed, %v", len(list), added, err)
	}
	set(t, users, user.Change{Name: fmt.Sprintf("u%04d", added-1), Clear: true})
}
