package apikey

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
	"github.com/weir-log/weir/use/table"
)

const (
	statePrefix = "apikey/"
	keysMax     = 1000
	// keptFor is how long a key that is revoked, or has expired, is kept and listed before Create
	// may delete it.
	keptFor = 30 * 24 * time.Hour

	idLength     = 8  // letters and digits, 5 bits each
	randomLength = 52 // 260 bits
)

// Keys are the API keys in a store. Methods may be called concurrently.
type Keys struct {
	table *table.Table[stored, map[string]held]
}

// New returns the keys in a store. Keys that cannot be read are logged.
func New(log table.Log, logger *slog.Logger) *Keys {
	return &Keys{table.New(log, logger, nil, table.Rules[stored, map[string]held]{
		Name: "API keys", Prefix: statePrefix, Max: keysMax, Decode: decode, View: heldIn, Repair: "it is refused: revoke it and create another",
		Show: func(_ string, s stored) (string, any) { return s.ID, s.Key },
		Full: fmt.Errorf("%w: there are %d, which is the limit; revoked and expired keys are deleted after %s", ErrTooMany, keysMax, keptFor),
	})}
}

// held is a key in the store.
type held struct {
	stored
	age     time.Duration // since it was made; of a revoked key, since it was revoked
	damaged bool          // its value cannot be read
}

func heldOf(id string, r table.Row[stored]) held {
	h := held{r.Value, r.Age, r.Err != nil}
	h.ID = id
	return h
}

// heldIn returns all keys by id.
func heldIn(rows table.Rows[stored]) map[string]held {
	all := make(map[string]held, len(rows))
	for key, r := range rows {
		id := strings.TrimPrefix(key, statePrefix)
		all[id] = heldOf(id, r)
	}
	return all
}

// state is nil while the key is valid.
func (h held) state() error {
	if h.damaged {
		return ErrDamaged
	}
	return h.Key.state(h.age)
}

// Create makes a key, durably, and returns its secret, weir_<id>_<52 letters and digits>, which
// nobody can find out later. Servers know the key within freshFor. ErrTooMany if there are too
// many; *eventlog.InvalidError if the key is not allowed.
//
// eventlog.ErrUnsure: the key may have been made, and nobody has its secret.
func (k *Keys) Create(ctx context.Context, s Spec) (Key, string, error) {
	now := time.Now().UTC().Truncate(time.Second)
	if err := s.check(now); err != nil {
		return Key{}, "", fmt.Errorf("create an API key: %w", err)
	}
	if s.groups().none() {
		s.Groups, s.GroupNames = s.Topics, s.TopicNames // stored with the key, so that `weir key list` shows all its rights
	}
	if s.queues().none() {
		s.Queues, s.QueueNames, s.AllQueues = s.Topics, s.TopicNames, s.AllTopics && s.AllGroups
	}
	key := Key{Name: s.Name, Access: set(s.Access), Created: now, From: s.From, Expires: s.Expires,
		Topics: set(s.Topics), Groups: set(s.Groups), AllTopics: s.AllTopics, AllGroups: s.AllGroups,
		Queues: set(s.Queues), AllQueues: s.AllQueues,
		TopicNames: set(s.TopicNames), GroupNames: set(s.GroupNames), QueueNames: set(s.QueueNames)}
	rows, err := k.table.Read(ctx)
	if err != nil {
		return Key{}, "", fmt.Errorf("create an API key: %w", err)
	}
	return k.add(ctx, audit.KeyCreate, rows, key)
}

// Rotate makes a key that is to replace another one, as Create does: it has the same name and
// rights, and is valid from now on, for as long as the other one was made for. The other key stays
// valid, so that its clients can change over; Revoke ends it. It costs two store calls. ErrUnknown,
// ErrRevoked or ErrDamaged: there is no key to take the rights from.
func (k *Keys) Rotate(ctx context.Context, id string) (Key, string, error) {
	rows, err := k.table.Read(ctx)
	if err != nil {
		return Key{}, "", fmt.Errorf("rotate API key %q: %w", id, err)
	}
	old, ok := heldIn(rows)[id]
	switch {
	case !ok:
		return Key{}, "", fmt.Errorf("rotate API key %q: %w", id, ErrUnknown)
	case old.damaged:
		return Key{}, "", fmt.Errorf("rotate API key %s: %w", id, ErrDamaged)
	case !old.Revoked.IsZero():
		return Key{}, "", fmt.Errorf("rotate API key %s: %w", id, ErrRevoked)
	}
	key := old.Key // its rights as they are: those that Create would add to an older key are no part of it
	key.Created, key.From = time.Now().UTC().Truncate(time.Second), time.Time{}
	if begins := later(old.Created, old.From); !old.Expires.IsZero() {
		key.Expires = key.Created.Add(old.Expires.Sub(begins))
	}
	return k.add(ctx, audit.KeyRotate, rows, key)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// add stores a key under a new id, beside all keys that there are, and returns it with its secret.
func (k *Keys) add(ctx context.Context, verb audit.Verb, rows table.Rows[stored], key Key) (Key, string, error) {
	key.ID = strings.ToLower(rand.Text()[:idLength])
	secret := Prefix + key.ID + "_" + strings.ToLower((rand.Text() + rand.Text())[:randomLength])
	sum := sha256.Sum256([]byte(secret))
	var edits []table.Edit[stored]
	for id, old := range heldIn(rows) {
		if old.forgettable() {
			edits = append(edits, table.Edit[stored]{Key: statePrefix + id, Decide: table.Delete[stored]})
		}
	}
	edits = append(edits, table.Edit[stored]{Key: statePrefix + key.ID, Verb: verb, What: "create API key " + key.ID, Decide: func(old table.Row[stored]) ([]byte, error) {
		if old.Exists() {
			return nil, eventlog.ErrStale
		}
		return encode(stored{Key: key, SHA256: hex.EncodeToString(sum[:])}), nil
	}})
	if err := k.table.EditFrom(ctx, rows, edits...)[len(edits)-1]; err != nil {
		return Key{}, "", err
	}
	return key, secret, nil
}

// forgettable reports whether a key was revoked or expired longer ago than keptFor: then Create
// deletes it.
func (h held) forgettable() bool {
	switch {
	case !h.Revoked.IsZero():
		return h.age > keptFor
	case !h.Expires.IsZero():
		return h.Created.Add(h.age).After(h.Expires.Add(keptFor))
	}
	return false
}

// Listed is a key, and nil or why it is not valid now: ErrRevoked, ErrExpired, ErrNotYet or
// ErrDamaged.
type Listed struct {
	Key
	Err error
}

// State says in words whether the key is valid now.
func (l Listed) State() string {
	switch {
	case errors.Is(l.Err, ErrRevoked):
		return "revoked"
	case errors.Is(l.Err, ErrExpired):
		return "expired"
	case errors.Is(l.Err, ErrNotYet):
		return "not yet valid"
	case errors.Is(l.Err, ErrDamaged):
		return "damaged"
	}
	return "good"
}

// Find reads one key from the store. ErrUnknown if there is none.
func (k *Keys) Find(ctx context.Context, id string) (Listed, error) {
	rows, err := k.table.Read(ctx)
	if err != nil {
		return Listed{}, err
	}
	h, ok := heldIn(rows)[id]
	if !ok {
		return Listed{}, fmt.Errorf("API key %q: %w", id, ErrUnknown)
	}
	return Listed{h.Key, h.state()}, nil
}

// List reads all keys from the store, the oldest first.
func (k *Keys) List(ctx context.Context) ([]Listed, error) {
	rows, err := k.table.Read(ctx)
	if err != nil {
		return nil, err
	}
	var list []Listed
	for _, h := range heldIn(rows) {
		list = append(list, Listed{h.Key, h.state()})
	}
	slices.SortFunc(list, func(a, b Listed) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Revoke makes a key invalid, durably; running servers know it within freshFor. Revoking it again
// is harmless. ErrUnknown if there is no such key.
func (k *Keys) Revoke(ctx context.Context, id string) (Key, error) {
	var h held
	err := k.table.Edit(ctx, table.Edit[stored]{Key: statePrefix + id, Verb: audit.KeyRevoke, What: fmt.Sprintf("revoke API key %q", id), Decide: func(old table.Row[stored]) ([]byte, error) {
		switch h = heldOf(id, old); {
		case !old.Exists():
			return nil, ErrUnknown
		case !h.Revoked.IsZero():
			return nil, ledger.ErrUnchanged
		}
		h.Revoked = h.Created.Add(h.age).UTC().Truncate(time.Second)
		if h.damaged {
			h.Revoked, h.SHA256 = time.Now().UTC().Truncate(time.Second), hex.EncodeToString(h.sum[:])
		}
		return encode(h.stored), nil
	}})[0]
	if err != nil {
		return Key{}, err
	}
	return h.Key, nil
}

// set sorts, and drops what occurs twice.
func set[T cmp.Ordered](list []T) []T { return slices.Compact(slices.Sorted(slices.Values(list))) }

// decode refuses fields that it does not know: a field of a newer weir may limit the key.
//
// A key without topics and queues, unless it is for metrics alone, was created by a version that
// did not store "all": it is for all topics, and without groups for all groups.
func decode(_ string, value []byte) (s stored, err error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, err
	}
	if hex.DecodedLen(len(s.SHA256)) != len(s.sum) {
		return s, fmt.Errorf("its SHA-256 has %d digits, but must have %d", len(s.SHA256), hex.EncodedLen(len(s.sum)))
	}
	if s.topics().none() && s.queues().none() && !onlyMetrics(s.Access) {
		s.AllTopics, s.AllGroups = true, len(s.Groups) == 0
	}
	_, err = hex.Decode(s.sum[:], []byte(s.SHA256))
	return s, err
}

func encode(s stored) []byte {
	value, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("API key %+v: %v", s.Key, err)) // strings and times always encode
	}
	return value
}
