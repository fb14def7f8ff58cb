package verify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// workload does at random what users do, until ctx ends. Each of its actors does one thing after
// the other.
type workload struct {
	*rig
	topics    []eventlog.Topic
	category  *stream.Category
	queue     *queue.Queue
	compacted eventlog.Topic
	done      atomic.Int64 // what the actors have done
}

func newWorkload(r *rig) *workload {
	r.t.Helper()
	w := &workload{rig: r}
	ctx := r.t.Context()
	for i := range 3 {
		w.topics = append(w.topics, r.topic(fmt.Sprint("busy", i), 2))
	}
	var err error
	w.compacted, err = r.Log.CreateTopic(ctx, eventlog.TopicSpec{Name: "compacted", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})
	r.must(err)
	w.category, err = r.Streams.CreateCategory(ctx, stream.Spec{Name: "accounts", Partitions: 2})
	r.must(err)
	_, err = r.Queues.Create(ctx, queue.Spec{Name: "jobs", Partitions: 2, Settings: queue.Settings{Unique: true, Attempts: 2, Backoff: time.Millisecond, Priorities: 2}})
	r.must(err)
	w.queue, err = r.Queues.Open(ctx, "jobs")
	r.must(err)
	return w
}

// run lets all actors act. The errors that a busy store may answer are no failures of the test.
func (w *workload) run(ctx context.Context, random *rand.Rand) {
	var all sync.WaitGroup
	for _, act := range []func(context.Context, *rand.Rand) error{w.publish, w.compact, w.produce, w.commit, w.append, w.append, w.remove, w.enqueue, w.work, w.work, w.change} {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		all.Go(func() {
			for ctx.Err() == nil {
				if err := act(context.WithoutCancel(ctx), own); err != nil && !tolerable(err) {
					w.t.Errorf("the workload failed: %v", err)
					return
				}
				w.done.Add(1)
			}
		})
	}
	all.Wait()
}

func tolerable(err error) bool {
	var conflict *stream.ConflictError
	return errors.As(err, &conflict) || slices.ContainsFunc([]error{stream.ErrArchived, eventlog.ErrUnknownTopic, eventlog.ErrNoPartition, eventlog.ErrUnavailable, group.ErrMoved, stream.ErrBoundary, context.DeadlineExceeded},
		func(known error) bool { return errors.Is(err, known) })
}

func (w *workload) publish(ctx context.Context, random *rand.Rand) error {
	t := w.topics[random.IntN(len(w.topics))]
	_, err := w.Log.Append(ctx, eventlog.Entry{Batches: []eventlog.Batch{sealed(w.t, t.Partitions[random.IntN(2)], 1+random.IntN(20), 1_700_000_000_000+random.Int64N(1e6))}})
	return err
}

func (w *workload) compact(ctx context.Context, random *rand.Rand) error {
	_, err := w.Log.Append(ctx, eventlog.Entry{Batches: []eventlog.Batch{sealed(w.t, w.compacted.Partitions[0], 1+random.IntN(20), 1_700_000_000_000+random.Int64N(1e6))}})
	return err
}

func (w *workload) produce(ctx context.Context, random *rand.Rand) error {
	id, sequence := int64(random.IntN(1<<30)), int32(0)
	p := w.topics[0].Partitions[0]
	for range 10 {
		n := 1 + random.IntN(5)
		if _, err := w.Log.Append(ctx, eventlog.Entry{Batches: []eventlog.Batch{producedBy(sealed(w.t, p, n, 1_700_000_000_000), id, sequence)}}); err != nil {
			return err
		}
		sequence += int32(n)
	}
	return nil
}

func (w *workload) commit(ctx context.Context, random *rand.Rand) error {
	t := w.topics[random.IntN(len(w.topics))]
	n := random.IntN(2)
	b, err := w.Log.Bounds(ctx, t.Partitions[n])
	if err != nil {
		return err
	}
	_, err = w.Groups.Commit(ctx, group.Commit{Group: fmt.Sprint("g", random.IntN(3)), Generation: -1,
		Offsets: []group.Committed{{TopicPartition: group.TopicPartition{Topic: t.ID, Partition: int32(n)}, Name: t.Name, Offset: b[0].Bounds.Next}}})
	return err
}

func (w *workload) append(ctx context.Context, random *rand.Rand) error {
	var events []stream.NewEvent
	for range 1 + random.IntN(4) {
		e := stream.NewEvent{Type: "paid", Data: fmt.Appendf(nil, "%d", random.Int64()), Tags: []string{fmt.Sprint("tag ", random.IntN(5)), fmt.Sprint("tag/", 5+random.IntN(50))}}
		if random.IntN(3) == 0 {
			e.Subject = fmt.Sprint("subject ", random.IntN(5))
		}
		events = append(events, e)
	}
	_, err := w.category.Append(ctx, fmt.Sprint("s/", random.IntN(12)), stream.Any, events...)
	return err
}

func (w *workload) remove(ctx context.Context, random *rand.Rand) error {
	name := fmt.Sprint("s/", random.IntN(12))
	state, err := w.category.State(ctx, name)
	if err != nil || !state.Exists || state.Version < 2 {
		return err
	}
	switch random.IntN(4) {
	case 0:
		_, err = w.category.Delete(ctx, name, stream.Exists)
	case 1:
		err = w.category.Forget(ctx, name, state.First+random.Int64N(state.Version-state.First+1))
	case 2:
		err = w.category.SaveSnapshot(ctx, name, stream.Snapshot{Version: state.Version, Data: []byte("state")})
	case 3:
		err = w.category.ForgetSubject(ctx, fmt.Sprint("subject ", random.IntN(5)))
	}
	var invalid *eventlog.InvalidError // deleted meanwhile, for example
	if errors.As(err, &invalid) {
		err = nil
	}
	return err
}

func (w *workload) enqueue(ctx context.Context, random *rand.Rand) error {
	m := queue.NewMessage{Value: []byte("job"), Priority: random.IntN(2)}
	switch random.IntN(4) {
	case 0:
		m.Unique = fmt.Sprint("unique ", random.IntN(20))
	case 1:
		m.Unique, m.Delay = fmt.Sprint("later ", random.IntN(20)), time.Duration(random.IntN(5000))*time.Millisecond
	case 2:
		m.Delay = time.Duration(random.IntN(3)) * time.Hour
	}
	_, err := w.queue.Enqueue(ctx, m)
	return err
}

func (w *workload) work(ctx context.Context, random *rand.Rand) error {
	messages, err := w.queue.Claim(ctx, queue.Claim{Max: 1 + random.IntN(10), Lease: time.Minute, Wait: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	for _, m := range messages {
		var err error
		switch random.IntN(6) {
		case 0:
			_, err = w.queue.Nack(ctx, queue.Nack{}, m.Receipt)
		case 1:
			_, err = w.queue.Nack(ctx, queue.Nack{Reject: true}, m.Receipt)
		case 2: // it stays claimed
		default:
			_, err = w.queue.Ack(ctx, m.Receipt)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// change trims partitions, and makes and deletes topics.
func (w *workload) change(ctx context.Context, random *rand.Rand) error {
	p := w.topics[2].Partitions[random.IntN(2)]
	b, err := w.Log.Bounds(ctx, p)
	if err != nil {
		return err
	}
	if err := w.Log.Trim(ctx, p, b[0].Bounds.First+eventlog.Offset(random.Int64N(int64(b[0].Bounds.Next-b[0].Bounds.First)+1))); err != nil {
		return err
	}
	t, err := w.Log.CreateTopic(ctx, eventlog.TopicSpec{Name: fmt.Sprint("short", random.Int64()), Partitions: 2})
	if err != nil {
		return err
	}
	if _, err := w.Log.Append(ctx, eventlog.Entry{Batches: []eventlog.Batch{sealed(w.t, t.Partitions[0], 3, 1_700_000_000_000)}}); err != nil {
		return err
	}
	return w.Log.DeleteTopic(ctx, t.Name)
}

// What users do leaves nothing that contradicts itself, neither afterwards nor while they do it.
func TestABusyStoreIsHealthyWhileItIsWrittenAndAfterwards(t *testing.T) {
	const enough = 1500 // of what is done meanwhile
	eachStore(t, func(r *rig) {
		t := r.t
		random := seed.Random(t)
		w := newWorkload(r)
		ctx, stop := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		busy.Go(func() { w.run(ctx, random) })
		store := r.store
		if r.url != "" {
			store = everystore.Open(t, r.url)
		}
		for w.done.Load() < enough && !t.Failed() {
			result, err := verify.Run(t.Context(), store, verify.Options{Checks: node.Checks(),
				Found:     func(f verify.Finding) { t.Errorf("found in a healthy store that is written: %s", f) },
				Undecided: func(check string, place verify.Place) { t.Logf("undecided: %s: %s", check, place) }})
			if err != nil {
				t.Errorf("the exam ended early: %v", err)
			}
			t.Logf("%+v", result)
		}
		stop()
		busy.Wait()
		r.clean()
		r.stop()
		r.clean()
	})
}
