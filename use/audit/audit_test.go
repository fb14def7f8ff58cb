package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/user"
)

var (
	quiet = slog.New(slog.DiscardHandler)
	alice = audit.Who{Type: audit.User, Name: "alice", Door: "http", Address: "192.0.2.7:1234"}
)

// recorded is a log whose changes are recorded.
type recorded struct {
	*audit.Log
	t     *testing.T
	store eventlog.Store
	told  map[eventlog.Partition]eventlog.Offset // up to where events were seen
	all   strings.Builder                        // all of them
}

func record(t *testing.T, store eventlog.Store, off bool) *recorded {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- log.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return &recorded{Log: audit.New(log, off, quiet), t: t, store: store, told: make(map[eventlog.Partition]eventlog.Offset)}
}

// news returns the events since the last call, as another process sees them.
func (r *recorded) news() (events []audit.Recorded) {
	r.t.Helper()
	log, err := eventlog.Open(r.t.Context(), r.store, eventlog.Config{Logger: quiet})
	if err != nil {
		r.t.Fatal(err)
	}
	topic, err := log.TopicNow(r.t.Context(), audit.Topic)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range topic.Partitions {
		for {
			got, err := log.Fetch(r.t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: r.told[p], MaxBytes: 1 << 20}}, MaxBytes: 1 << 20})
			if err != nil || got[0].Err != nil {
				r.t.Fatal(err, got)
			}
			if len(got[0].Batches) == 0 {
				break
			}
			for _, b := range got[0].Batches {
				r.told[p] = b.End()
				for rec, err := range b.Decode() {
					if err != nil {
						r.t.Fatal(err)
					}
					event, err := audit.Parse(rec.Value)
					if err != nil {
						r.t.Fatal(err)
					}
					r.all.Write(rec.Value)
					events = append(events, event)
				}
			}
		}
	}
	return events
}

// tells sees that there is one new event, of alice, with these words before and after; "": there is
// no such object.
func (r *recorded) tells(what string, verb audit.Verb, object, before, after string) {
	r.t.Helper()
	events := r.news()
	if len(events) != 1 {
		r.t.Errorf("%s: %d events: %+v", what, len(events), events)
		return
	}
	e := events[0]
	if e.Who != alice || e.Verb != verb || e.Object != object || !has(e.Before, before) || !has(e.After, after) || time.Since(e.Time) > time.Hour {
		r.t.Errorf("%s: %+v, before %s, after %s; want %s %s, %q, %q", what, e, e.Before, e.After, verb, object, before, after)
	}
}

// has reports whether a state has words; "": there is no such object.
func has(state json.RawMessage, words string) bool {
	if words == "" {
		return string(state) == "null"
	}
	return !slices.ContainsFunc(strings.Fields(words), func(word string) bool { return !strings.Contains(string(state), word) })
}

func (r *recorded) silent(what string) {
	r.t.Helper()
	if events := r.news(); len(events) > 0 {
		r.t.Errorf("%s: %+v", what, events)
	}
}

func TestEachChangeOfTopicsAndAccessIsOneEvent(t *testing.T) {
	everystore.Run(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		r := record(t, reopen(t), false)
		ctx, must := audit.By(t.Context(), alice), func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		const password, verifier = "marked password", "bWFya2Vk" // the second is "marked" in base64
		users, keys, acls, quotas := user.New(r.Log, quiet), apikey.New(r.Log, quiet), acl.New(r.Log, quiet), quota.New(r.Log, quiet)

		_, err := r.CreateTopic(ctx, eventlog.TopicSpec{Name: "orders", Partitions: 2, Config: map[string]string{"retention.ms": "5"}})
		must(err)
		r.tells("create a topic", audit.TopicCreate, "orders", "", `"partitions":2 "retention.ms":"5"`)
		_, err = r.CreateTopic(ctx, eventlog.TopicSpec{Name: "orders", Partitions: 2})
		if !errors.Is(err, eventlog.ErrTopicExists) {
			t.Error(err)
		}
		r.silent("a topic that exists")
		_, err = r.ChangeTopic(ctx, "orders", eventlog.TopicChange{Partitions: 3})
		must(err)
		r.tells("add a partition", audit.TopicAlter, "orders", `"partitions":2`, `"partitions":3`)
		_, err = r.ChangeTopic(ctx, "orders", eventlog.TopicChange{Partitions: 3})
		must(err)
		r.silent("a change that is none")
		must(r.DeleteTopic(ctx, "orders"))
		r.tells("delete a topic", audit.TopicDelete, "orders", `"partitions":3`, "")
		_, err = r.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "own", Partitions: 1})
		must(err)
		r.silent("a change of weir's own")

		set := func(c user.Change) error { return users.Change(ctx, []user.Change{c})[0] }
		credentials, err := user.Credentials(password, []user.Mechanism{user.SHA256}, user.IterationsMin)
		must(err)
		cred := credentials[user.SHA256]
		cred.Salt = []byte("marked")
		must(set(user.Change{Name: "bob", Create: true, Set: map[user.Mechanism]user.Credential{user.SHA256: cred}}))
		r.tells("create a user", audit.UserCreate, "bob", "", `"SCRAM-SHA-256":4096`)
		must(set(user.Change{Name: "bob", Set: credentials}))
		r.tells("alter a user", audit.UserAlter, "bob", "SCRAM-SHA-256", "SCRAM-SHA-256")
		if err := set(user.Change{Name: "bob", Create: true}); !errors.Is(err, user.ErrExists) {
			t.Error(err)
		}
		r.silent("a user that exists")
		must(set(user.Change{Name: "bob", Clear: true}))
		r.tells("delete a user", audit.UserDelete, "bob", "SCRAM-SHA-256", "")

		key, secret, err := keys.Create(ctx, apikey.Spec{Name: "shop", Access: []apikey.Access{apikey.Read}, Topics: []string{"orders."}})
		must(err)
		r.tells("create a key", audit.KeyCreate, key.ID, "", `"name":"shop" orders.`)
		next, other, err := keys.Rotate(ctx, key.ID)
		must(err)
		r.tells("rotate a key", audit.KeyRotate, next.ID, "", `"name":"shop"`)
		_, err = keys.Revoke(ctx, key.ID)
		must(err)
		r.tells("revoke a key", audit.KeyRevoke, key.ID, `"name":"shop"`, `"revoked":`)
		_, err = keys.Revoke(ctx, key.ID)
		must(err)
		r.silent("a key that is revoked")

		rule := acl.Binding{Principal: "User:bob", Host: acl.Everywhere, Rule: acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Read}}
		must(errors.Join(acls.Create(ctx, []acl.Binding{rule})...))
		r.tells("create a rule", audit.ACLCreate, "User:bob", "", `"effect":"allow" "operation":"read" "resource_type":"topic" "name":"orders"`)
		must(errors.Join(acls.Create(ctx, []acl.Binding{rule})...))
		r.silent("a rule that exists")
		must(errors.Join(acls.Delete(ctx, []acl.Filter{{Kind: acl.Any, Pattern: acl.AnyPattern, Operation: acl.Any, Effect: acl.Any}})[0].Errs...))
		r.tells("delete a rule", audit.ACLDelete, "User:bob", "orders", "")

		bob := quota.Entity{User: quota.Named("bob")}
		must(errors.Join(quotas.Change(ctx, []quota.Change{{Entity: bob, Set: map[quota.Kind]float64{quota.ProducerByteRate: 5}}})...))
		r.tells("set a quota", audit.QuotaAlter, "user bob", "", `"producer_byte_rate":5`)
		must(errors.Join(quotas.Change(ctx, []quota.Change{{Entity: bob, Clear: true}})...))
		r.tells("remove a quota", audit.QuotaDelete, "user bob", `"producer_byte_rate":5`, "")

		for _, mark := range []string{password, verifier, secret, other, secret[len(secret)-20:], other[len(other)-20:], "stored_key", "sha256", "SHA256:", "salt"} {
			if strings.Contains(r.all.String(), mark) {
				t.Errorf("the events have %q", mark)
			}
		}
	})
}

// troubled is a store with a fault at the next commit of an event.
type troubled struct {
	*memory.Store
	next atomic.Pointer[func(commit func() error) error]
}

func (s *troubled) Commit(ctx context.Context, flush []eventlog.Entry) (out []eventlog.Outcome, err error) {
	tells := func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Batches, func(b eventlog.Batch) bool { return strings.Contains(string(b.Bytes), `"verb":`) })
	}
	if slices.ContainsFunc(flush, tells) {
		if next := s.next.Swap(nil); next != nil {
			err = (*next)(func() error { out, err = s.Store.Commit(ctx, flush); return err })
			return out, err
		}
	}
	return s.Store.Commit(ctx, flush)
}

func (s *troubled) then(next func(commit func() error) error) { s.next.Store(&next) }

func TestAChangeAndItsEventAreOneEntry(t *testing.T) {
	store := &troubled{Store: memory.New()}
	r := record(t, store, false)
	ctx, quotas := audit.By(t.Context(), alice), quota.New(r.Log, quiet)
	limit := float64(0)
	raise := func() error {
		limit++
		return quotas.Change(ctx, []quota.Change{{Entity: quota.Entity{User: quota.Named("bob")}, Set: map[quota.Kind]float64{quota.ProducerByteRate: limit}}})[0]
	}
	if err := raise(); err != nil {
		t.Fatal(err)
	}
	r.tells("a quota", audit.QuotaAlter, "user bob", "", `:1`)
	has := func(want float64) {
		t.Helper()
		if q, err := quotas.Find(t.Context(), quota.Entity{User: quota.Named("bob")}); err != nil || q.Limits[quota.ProducerByteRate] != want {
			t.Errorf("it has %v, %v; want %v", q, err, want)
		}
	}
	store.then(func(func() error) error { return errors.New("no") })
	if err := raise(); err == nil {
		t.Error("a store that fails makes the change")
	}
	r.silent("a change that failed")
	has(1)
	store.then(func(commit func() error) error { return errors.Join(commit(), eventlog.ErrUnsure) })
	if err := raise(); err != nil {
		t.Error(err)
	}
	r.tells("a lost answer", audit.QuotaAlter, "user bob", `:1`, `:3`)
	has(3)
	store.then(func(func() error) error { return eventlog.ErrUnsure })
	if err := raise(); err != nil {
		t.Error(err)
	}
	r.tells("a lost change", audit.QuotaAlter, "user bob", `:3`, `:4`)
	store.then(func(commit func() error) error { return errors.Join(commit(), eventlog.ErrUnsure) })
	if _, err := r.CreateTopic(ctx, eventlog.TopicSpec{Name: "orders", Partitions: 1}); !errors.Is(err, eventlog.ErrUnsure) {
		t.Error(err)
	}
	r.tells("a topic whose answer was lost", audit.TopicCreate, "orders", "", `"partitions":1`)
}

func TestNobodyChangesTheAudit(t *testing.T) {
	r := record(t, memory.New(), false)
	ctx := audit.By(t.Context(), alice)
	var invalid *eventlog.InvalidError
	if _, err := r.CreateTopic(ctx, eventlog.TopicSpec{Name: audit.Topic, Partitions: 1}); !errors.As(err, &invalid) {
		t.Errorf("create: %v", err)
	}
	if _, err := r.CreateTopic(ctx, eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	r.tells("a topic", audit.TopicCreate, "orders", "", "partitions")
	topic, err := r.Topic(ctx, audit.Topic)
	if err != nil || topic.Setting("retention.ms") != "31622400000" {
		t.Errorf("%+v, %v", topic, err)
	}
	for _, policy := range []string{"compact", "compact,delete"} {
		if _, err := r.AlterTopic(ctx, audit.Topic, func(set map[string]string) error { set["cleanup.policy"] = policy; return nil }); !errors.As(err, &invalid) {
			t.Errorf("compact: %v", err)
		}
	}
	if err := r.DeleteTopic(ctx, audit.Topic); !errors.As(err, &invalid) {
		t.Errorf("delete: %v", err)
	}
	if err := r.CheckDeletes(ctx, topic)[0]; !errors.As(err, &invalid) {
		t.Errorf("delete records: %v", err)
	}
	for name, value := range map[string]string{"retention.ms": "0", "retention.bytes": "0", "weir.linger.ms": "5000"} {
		if _, err := r.AlterTopic(ctx, audit.Topic, func(set map[string]string) error { set[name] = value; return nil }); !errors.As(err, &invalid) {
			t.Errorf("%s = %s: %v", name, value, err)
		}
	}
	r.silent("what was refused")
	if _, err := r.AlterTopic(ctx, audit.Topic, func(set map[string]string) error { set["retention.ms"] = "86400000"; return nil }); err != nil {
		t.Error(err)
	}
	r.tells("its retention", audit.TopicAlter, audit.Topic, "31622400000", "86400000")
}

func TestTheAuditCanBeOff(t *testing.T) {
	r := record(t, memory.New(), true)
	if _, err := r.CreateTopic(audit.By(t.Context(), alice), eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if topics := r.Topics(); len(topics) != 1 {
		t.Errorf("%+v", topics)
	}
}
