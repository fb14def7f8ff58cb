package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// without is a store that is unavailable for the change of one key.
type without struct {
	eventlog.Store
	key atomic.Pointer[string] // nil: for none
}

func (s *without) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if key := s.key.Load(); key != nil && slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return p.Key == *key })
	}) {
		return nil, fmt.Errorf("commit: %w", eventlog.ErrUnavailable)
	}
	return s.Store.Commit(ctx, flush)
}

// topicsOf lists the topics that clients see.
func topicsOf(t *testing.T, log *eventlog.Log) (names []string) {
	t.Helper()
	if err := log.RefreshTopics(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, topic := range log.Topics() {
		if !eventlog.InternalTopic(topic.Name) {
			names = append(names, topic.Name)
		}
	}
	return names
}

func wantUnsure(t *testing.T, what string, err error, says string) {
	t.Helper()
	if !errors.Is(err, eventlog.ErrUnsure) || errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("%s: %v, want that the outcome is unknown, and %q", what, err, says)
	}
}

func wantUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("%s: %v, want that nothing happened, because the store is unavailable", what, err)
	}
}

// briefly is a context for a call that the store does not answer.
func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var allTopics = queue.Settings{KeepDone: true, Priorities: 2}

// The store is lost in the middle of the creation of a queue: who asked for it is told that
// something happened if, and only if, a topic was created.
func TestAQueueOfWhichOnlyTopicsWereCreatedIsNotCalledUntouched(t *testing.T) {
	for key, made := range map[string]int{"topic/mail": 0, "topic/mail.dlt": 1, "topic/mail.done": 2, "topic/mail.p1": 3, "queue/def/mail": 4} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &without{Store: newStore(t)}
				log, qs := startLog(t, store)
				store.key.Store(&key)
				spec := queue.Spec{Name: "mail", Partitions: 1, Settings: allTopics}
				for try := range 2 {
					_, err := qs.Create(briefly(t), spec)
					if made > 0 && try == 0 {
						wantUnsure(t, "create", err, "its topics exist, but it may not be a queue yet: try again")
					} else {
						wantUnavailable(t, "create, when no topic is created", err)
					}
					if got := topicsOf(t, log); len(got) != made {
						t.Errorf("there are topics %v, want %d", got, made)
					}
				}
				store.key.Store(nil)
				if err := qs.Ensure(t.Context(), spec); err != nil {
					t.Errorf("when the store is back: %v", err)
				}
				enqueue(t, open(t, qs, "mail"), "m")
			})
		})
	}
}

func TestAQueueOfWhichOnlyTopicsWereAddedIsNotCalledUntouched(t *testing.T) {
	for key, made := range map[string]int{"topic/mail.p1": 0, "topic/mail.done": 1, "queue/def/mail": 2} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &without{Store: newStore(t)}
				log, qs := startLog(t, store)
				create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
				store.key.Store(&key)
				alter := func(ctx context.Context) error {
					_, err := qs.Alter(ctx, "mail", func(s *queue.Settings) error {
						s.KeepDone, s.Priorities = true, 2
						return nil
					})
					return err
				}
				for try := range 2 {
					err := alter(briefly(t))
					if made > 0 && try == 0 {
						wantUnsure(t, "alter", err, "its topics exist, but its settings may be as before: try again")
					} else {
						wantUnavailable(t, "alter, when no topic is created", err)
					}
					if got := topicsOf(t, log); len(got) != 2+made {
						t.Errorf("there are topics %v, want %d", got, 2+made)
					}
				}
				store.key.Store(nil)
				if err := alter(t.Context()); err != nil {
					t.Errorf("when the store is back: %v", err)
				}
			})
		})
	}
}

// The topic of the dead letters was deleted, and a purge creates it again.
func TestAPurgeThatOnlyCreatedATopicIsNotCalledUntouched(t *testing.T) {
	for key, made := range map[string]int{"topic/mail.dlt": 0, "queue/def/mail": 1} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &without{Store: newStore(t)}
				log, qs := startLog(t, store)
				enqueue(t, create(t, qs, queue.Spec{Name: "mail", Partitions: 1}), "m")
				if err := log.DeleteTopic(t.Context(), "mail.dlt"); err != nil {
					t.Fatal(err)
				}
				store.key.Store(&key)
				for try := range 2 {
					err := qs.Purge(briefly(t), "mail")
					if made > 0 && try == 0 {
						wantUnsure(t, "purge", err, "its topics exist, but its messages may still be there: try again")
					} else {
						wantUnavailable(t, "purge, when no topic is created", err)
					}
					if got := topicsOf(t, log); len(got) != 1+made {
						t.Errorf("there are topics %v, want %d", got, 1+made)
					}
				}
				store.key.Store(nil)
				if got := values(claimN(t, open(t, qs, "mail"), 1)); got != "m " {
					t.Errorf("claimed %q, want the message that was not purged", got)
				}
				if err := qs.Purge(t.Context(), "mail"); err != nil {
					t.Errorf("when the store is back: %v", err)
				}
			})
		})
	}
}

// unusable are topics that no queue can have, by what the error says.
var unusable = map[string]eventlog.TopicSpec{
	"only streams append": {Partitions: 1, Writer: "streams"},
	"it is compacted":     {Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}},
}

func TestAQueueThatIsRefusedLeavesNoTopics(t *testing.T) {
	for says, spec := range unusable {
		for _, spec.Name = range []string{"mail", "mail.dlt", "mail.done", "mail.p1"} {
			t.Run(spec.Name+" "+says, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log, qs := startLog(t, newStore(t))
					if _, err := log.CreateTopic(t.Context(), spec); err != nil {
						t.Fatal(err)
					}
					_, err := qs.Create(t.Context(), queue.Spec{Name: "mail", Settings: allTopics})
					wantInvalid(t, "create", err, says)
					if got := topicsOf(t, log); len(got) != 1 {
						t.Errorf("there are topics %v, want one", got)
					}
				})
			})
		}
	}
}

func TestAChangeThatIsRefusedLeavesNoTopics(t *testing.T) {
	refused := func(t *testing.T, says string, in, to queue.Settings, there ...eventlog.TopicSpec) {
		synctest.Test(t, func(t *testing.T) {
			log, qs := startLog(t, newStore(t))
			create(t, qs, queue.Spec{Name: "mail", Settings: in})
			for _, spec := range there {
				if _, err := log.CreateTopic(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
			}
			before := topicsOf(t, log)
			_, err := qs.Alter(t.Context(), "mail", func(s *queue.Settings) error { *s = to; return nil })
			wantInvalid(t, "alter", err, says)
			if got := topicsOf(t, log); !slices.Equal(got, before) {
				t.Errorf("there are topics %v, want %v", got, before)
			}
		})
	}
	for says, spec := range unusable {
		for _, spec.Name = range []string{"mail.done", "mail.p1"} {
			t.Run(spec.Name+" "+says, func(t *testing.T) { refused(t, says, queue.Settings{}, allTopics, spec) })
		}
	}
	t.Run("fewer priorities", func(t *testing.T) {
		refused(t, "can only be raised", queue.Settings{Priorities: 3}, allTopics)
	})
}

// Another process creates the queue after this one created topics: there is a queue, and nothing is
// unknown.
func TestAQueueThatAnotherProcessCreatesMeanwhileExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		turn := &beforePut{Store: store, prefix: "queue/def/"}
		qs, other := start(t, turn), start(t, store)
		spec := queue.Spec{Name: "mail", Partitions: 1}
		turn.then(sync.OnceFunc(func() { create(t, other, spec) }))
		if _, err := qs.Create(t.Context(), spec); !errors.Is(err, queue.ErrQueueExists) || errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("create: %v, want that the queue exists", err)
		}
		spec.Name = "bills"
		turn.then(sync.OnceFunc(func() { create(t, other, spec) }))
		if err := qs.Ensure(t.Context(), spec); err != nil {
			t.Errorf("ensure: %v", err)
		}
	})
}

// A change is asked for again, because another came first, and then is not wanted any more. Its
// topic stays.
func TestAChangeThatIsAbandonedAfterItsTopicWasCreatedIsNotCalledUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		turn := &beforePut{Store: store, prefix: "queue/def/"}
		qs, other := start(t, turn), start(t, store)
		create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		turn.then(sync.OnceFunc(func() {
			if err := other.Pause(t.Context(), "mail"); err != nil {
				t.Error(err)
			}
		}))
		paused := errors.New("it is paused")
		_, err := qs.Alter(t.Context(), "mail", func(s *queue.Settings) error {
			s.KeepDone = true
			if s.Paused {
				return paused
			}
			return nil
		})
		wantUnsure(t, "alter", err, "its topics exist, but its settings may be as before")
		if !errors.Is(err, paused) {
			t.Errorf("%v does not have the caller's own error", err)
		}
	})
}

// Another process deletes the queue after the topic for a change was created.
func TestAChangeOfAQueueThatIsDeletedMeanwhileIsNotCalledUntouched(t *testing.T) {
	for name, change := range map[string]func(context.Context, *queue.Queues) error{
		"purge": func(ctx context.Context, qs *queue.Queues) error { return qs.Purge(ctx, "mail") },
		"alter": func(ctx context.Context, qs *queue.Queues) error {
			_, err := qs.Alter(ctx, "mail", func(s *queue.Settings) error { s.KeepDone = true; return nil })
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			turn := &beforePut{Store: store, prefix: "queue/def/"}
			log, qs := startLog(t, turn)
			other := start(t, store)
			create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
			if err := log.DeleteTopic(t.Context(), "mail.dlt"); err != nil {
				t.Fatal(err)
			}
			turn.then(sync.OnceFunc(func() {
				if err := other.Delete(t.Context(), "mail"); err != nil {
					t.Error(err)
				}
			}))
			wantUnsure(t, name, change(t.Context(), qs), queue.ErrUnknownQueue.Error())
		})
	}
}
