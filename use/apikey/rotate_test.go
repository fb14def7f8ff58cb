package apikey

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
)

// A key that replaces another one may do the same, neither more nor less, and lasts as long.
func TestARotatedKeyHasTheSameRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
		for name, spec := range map[string]Spec{
			"everything": {Access: []Access{Admin}, AllTopics: true, AllGroups: true},
			"topics":     {Access: []Access{Write, Read}, Topics: []string{"orders."}, Groups: []string{"billing"}, Queues: []string{"mail"}},
			"queues":     {Access: []Access{Read}, AllQueues: true},
			"names":      {Access: []Access{Read}, TopicNames: []string{"orders"}, GroupNames: []string{"billing"}, QueueNames: []string{"mail"}},
			"metrics":    {Access: []Access{Metrics}},
			"writes":     {Access: []Access{Write}, AllTopics: true},
			"for a day":  {Access: []Access{Read}, Topics: []string{"orders."}},
			"later":      {Access: []Access{Read}, Topics: []string{"orders."}},
		} {
			now := time.Now().UTC()
			switch spec.Name = name; name {
			case "for a day":
				spec.Expires = now.Add(24 * time.Hour)
			case "later":
				spec.From, spec.Expires = now.Add(time.Hour), now.Add(25*time.Hour)
			}
			old, oldSecret, err := keys.Create(t.Context(), spec)
			check(t, err)
			time.Sleep(48 * time.Hour) // an expired key can be renewed
			key, secret, err := keys.Rotate(t.Context(), old.ID)
			check(t, err)
			now = time.Now().UTC().Truncate(time.Second)
			if key.ID == old.ID || secret == oldSecret || !key.Created.Equal(now) || !key.From.IsZero() || !old.Expires.IsZero() && !key.Expires.Equal(now.Add(24*time.Hour)) {
				t.Errorf("%s: %+v became %+v", name, old, key)
			}
			found, err := keys.Find(t.Context(), key.ID)
			check(t, err)
			if found.Err != nil || found.State() != "good" || !found.Expires.Equal(key.Expires) {
				t.Errorf("%s: found is %+v, %v", name, found, found.Err)
			}
			id, err := keys.Check(t.Context(), secret)
			check(t, err)
			key.ID, key.Created, key.From, key.Expires = old.ID, old.Created, old.From, old.Expires
			same := slices.Equal(key.Access, old.Access) && slices.Equal(key.Topics, old.Topics) && slices.Equal(key.Groups, old.Groups) && slices.Equal(key.Queues, old.Queues)
			same = same && slices.Equal(key.TopicNames, old.TopicNames) && slices.Equal(key.GroupNames, old.GroupNames) && slices.Equal(key.QueueNames, old.QueueNames)
			if !same || key.AllTopics != old.AllTopics || key.AllGroups != old.AllGroups || key.AllQueues != old.AllQueues || key.Name != old.Name {
				t.Errorf("%s: the rights of %+v became those of %+v", name, old, key)
			}
			if id.Administers() != (name == "everything") {
				t.Errorf("%s: it administers: %v", name, id.Administers())
			}
		}
	})
}

// A key from before there were queues has none, and gets none by being rotated.
func TestRotatingAnOldKeyDoesNotWidenIt(t *testing.T) {
	store := memory.New()
	keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	const secret = "weir_old00000_"
	sum := sha256.Sum256([]byte(secret + strings.Repeat("a", randomLength)))
	value := `{"id":"old00000","name":"old","access":["admin"],"created":"2020-01-01T00:00:00Z","sha256":"` + hex.EncodeToString(sum[:]) + `"}`
	_, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: statePrefix + "old00000", Version: 1, Value: []byte(value)}}}})
	check(t, err)
	_, made, err := keys.Rotate(t.Context(), "old00000")
	check(t, err)
	for _, text := range []string{secret + strings.Repeat("a", randomLength), made} {
		id, err := keys.Check(t.Context(), text)
		check(t, err)
		if !id.May(Admin, "") || id.MayQueue(Read, "mail") || id.Administers() {
			t.Errorf("the key %+v has other rights", id)
		}
	}
}

func TestKeysThatCannotBeRotated(t *testing.T) {
	store := memory.New()
	keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	key, _ := create(t, keys, Spec{Name: "a", Access: []Access{Read}})
	_, err := keys.Revoke(t.Context(), key.ID)
	check(t, err)
	_, err = store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: statePrefix + "newer000", Version: 1, Value: []byte(`{"limit":1}`)}}}})
	check(t, err)
	for id, want := range map[string]error{"none": ErrUnknown, key.ID: ErrRevoked, "newer000": ErrDamaged} {
		if _, _, err := keys.Rotate(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("rotate %s: %v, want %v", id, err, want)
		}
	}
	if _, err := keys.Find(t.Context(), "none"); !errors.Is(err, ErrUnknown) {
		t.Errorf("find none: %v", err)
	}
	list, err := keys.List(t.Context())
	check(t, err)
	if len(list) != 2 {
		t.Errorf("listed are %+v", list)
	}
}
