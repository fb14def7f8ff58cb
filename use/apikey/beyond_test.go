package apikey

import (
	"context"
	"log/slog"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
)

// blind lists nothing: who asks it has read before all others wrote.
type blind struct{ eventlog.Store }

func (blind) List(context.Context, string, string, int) ([]eventlog.KeyValue, error) { return nil, nil }

// Callers of Create that do not know of each other can exceed the limit. Each key that they made is
// valid, is listed, and can be revoked.
func TestKeysBeyondTheLimitAreKnown(t *testing.T) {
	store := memory.New()
	racing := New(everystore.Direct(blind{store}), slog.New(slog.DiscardHandler))
	secrets := make(map[string]string) // by id
	for range 3 * keysMax {
		key, secret := create(t, racing, Spec{Name: "a", Access: []Access{Read}})
		secrets[key.ID] = secret
	}
	keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	list, err := keys.List(t.Context())
	check(t, err)
	if len(list) != len(secrets) {
		t.Errorf("%d of %d keys are listed", len(list), len(secrets))
	}
	invalid := 0
	for _, secret := range secrets {
		if _, err := keys.Check(t.Context(), secret); err != nil {
			invalid++
		}
	}
	if invalid > 0 {
		t.Errorf("%d of %d keys are refused", invalid, len(secrets))
	}
}
