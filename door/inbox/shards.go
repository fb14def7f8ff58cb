package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/keys"
	"github.com/weir-log/weir/use/publish"
)

// On a store made of shards, the inbox of a shard has events for partitions on all of them, and an
// entry is on one shard. So each partition has a key of its own:
//
//	row ─► its partition is chosen, in weir_inbox_target, durable ─► entry on the partition's shard: batch, and the key names the rows ─► rows are deleted
//
// The partition that was chosen for a row stays, whoever publishes it. The entry checks that the
// key is the one that was known before the row was read. So of two movers, one finds out that the
// other has published. A row that was published and not deleted, or whose deletion a failover has
// lost, is found in the key of its partition.

// ShardMovers are the movers of the inboxes of a store made of shards.
type ShardMovers []*shardMover

// NewShardMovers returns a mover for each shard of a store; nil if it is not made of shards. They
// open their doors when they run, because a shard may not answer now. observer may be nil.
func NewShardMovers(log *eventlog.Log, store eventlog.Store, publisher *publish.Publisher, logger *slog.Logger, observer Observer) (all ShardMovers) {
	if observer == nil {
		observer = nobody{}
	}
	set, is := eventlog.As[eventlog.Sharded](store)
	if !is {
		return nil
	}
	for n := range set.Shards() {
		all = append(all, &shardMover{set: set, shard: n, log: log, publisher: publisher, logger: logger, observer: observer, published: make(map[eventlog.Partition]published)})
	}
	return all
}

// Run moves rows until ctx ends.
func (all ShardMovers) Run(ctx context.Context) error {
	var running errgroup.Group
	for _, m := range all {
		running.Go(func() error { return m.Run(ctx) })
	}
	return running.Wait()
}

// shardMover publishes the rows of a shard's inbox. Any number of processes may run one on the same
// inbox.
type shardMover struct {
	set       eventlog.Sharded
	shard     int
	door      *Door // nil: it is not open yet
	log       *eventlog.Log
	publisher *publish.Publisher
	logger    *slog.Logger
	observer  Observer

	in        string                           // the incarnation of the inbox's database in which rows were read last: see database
	published map[eventlog.Partition]published // what is known of the keys, whose rows are deleted in that incarnation
	prunedAt  time.Time                        // when keys of deleted partitions were last looked for
}

// published is the value of a partition's key: the rows that were published last. All rows that a
// key named earlier are deleted. The times tell a row from a later one with its id: a failover of
// the database may lose a row, and give its id to another.
type published struct {
	IDs []int64 `json:"ids"`
	At  []int64 `json:"at"`

	version eventlog.Version
}

var (
	// errNoInbox: the shard's store is of a kind without an inbox.
	errNoInbox = errors.New("the shard has no inbox")
	// errLearned: the key of a partition was not known when its rows were read. Now it is, and the
	// rows that it names are deleted.
	errLearned = errors.New("rows must be read again")
)

// Run moves rows until ctx ends, or returns if the shard has no inbox.
func (m *shardMover) Run(ctx context.Context) error {
	pause, failures := pollMin, 0
	for ctx.Err() == nil {
		rows := 0
		err := recovered.Do(func() (err error) {
			rows, err = m.step(ctx)
			return err
		})
		switch {
		case ctx.Err() != nil || errors.Is(err, errNoInbox):
			return nil
		case err == nil && rows > 0:
			pause, failures = pollMin, 0
		case err == nil:
			pause, failures = min(2*pause, pollMax), 0
		case errors.Is(err, errLearned) || errors.Is(err, eventlog.ErrStale):
			if failures == 0 {
				pause = pollMin
			}
		default:
			m.observer.Failed()
			if failures++; failures == 1 {
				m.logger.Warn("events published by SQL on a shard cannot be moved into the log; they stay in weir_inbox; trying again", "shard", m.shard, "err", err)
			}
			pause = min(pollMax<<min(failures, 10), failurePause)
		}
		if err != nil && rows > 0 { // some partitions took their rows: do not wait long for the next
			pause = pollMin
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// aimed is a row with the partition that was chosen for it.
type aimed struct {
	row
	at     int64 // when it was published, as the row says
	target *target
}

// target says where a row goes. The number of a topic's partition and the partition's own number
// never change.
type target struct {
	id        int64 // of the row
	topic     eventlog.TopicID
	number    int32
	partition eventlog.Partition
}

// listOf returns targets for a statement, as JSON.
func listOf(targets []target) (string, error) {
	rows := make([][4]any, len(targets))
	for i, t := range targets {
		rows[i] = [4]any{t.id, t.topic.String(), t.number, int64(t.partition)}
	}
	list, err := json.Marshal(rows)
	return string(list), err
}

// step moves one chunk of rows, and returns how many.
func (m *shardMover) step(ctx context.Context) (int, error) {
	if m.door == nil {
		if err := m.open(ctx); err != nil {
			return 0, err
		}
	}
	if time.Since(m.prunedAt) >= forgetEvery {
		m.forgetKeys(ctx, m.door)
	}
	chunk, err := m.read(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	if chunk, err = m.check(ctx, chunk); err != nil {
		errs = append(errs, err)
	}
	if len(chunk) == 0 {
		return 0, errors.Join(errs...)
	}
	if chunk, err = m.aim(ctx, chunk); err != nil {
		return 0, errors.Join(append(errs, err)...)
	}
	ready := chunk[:0]
	tried := map[eventlog.Partition]bool{}
	for _, r := range chunk {
		p := r.target.partition
		if _, known := m.published[p]; known && !tried[p] {
			ready = append(ready, r)
			continue
		}
		if !tried[p] {
			errs = append(errs, m.learn(ctx, p))
		}
		tried[p] = true
	}
	rows, err := m.publish(ctx, ready)
	return rows, errors.Join(append(errs, err)...)
}

// attachShards creates the tables and functions of each shard that answers. If that fails for a
// shard, its mover tries again, and logs the error.
func attachShards(ctx context.Context, set eventlog.Sharded, logger *slog.Logger) {
	var attaching sync.WaitGroup
	for n := range set.Shards() {
		attaching.Go(func() { _, _ = openShard(ctx, set, n, logger) })
	}
	attaching.Wait()
}

// openShard opens the door of a shard, and creates its tables and functions.
func openShard(ctx context.Context, set eventlog.Sharded, n int, logger *slog.Logger) (*Door, error) {
	store, err := set.ShardStore(n)
	if err != nil {
		return nil, err
	}
	door := &Door{database: databaseOf(store, n)}
	if door.database == nil {
		return nil, errNoInbox
	}
	return door, door.open(ctx, logger)
}

// open opens the door of the shard.
func (m *shardMover) open(ctx context.Context) error {
	door, err := openShard(ctx, m.set, m.shard, m.logger)
	if err != nil {
		return err
	}
	if err := m.tidy(ctx, door); err != nil {
		return err
	}
	m.door = door
	return nil
}

// tidy deletes what earlier movers left: rows that were published when the shard was a store by
// itself, targets of rows that are gone, and keys of partitions that are gone.
func (m *shardMover) tidy(ctx context.Context, door *Door) error {
	if m.shard == 0 {
		if err := NewMover(m.log, door, m.publisher, m.logger, m.observer).catchUp(ctx); err != nil {
			return err
		}
	}
	if err := door.removeTargets(ctx); err != nil {
		return err
	}
	m.forgetKeys(ctx, door)
	return nil
}

// forgetKeys deletes the keys of partitions that are gone, and the rows that they name.
func (m *shardMover) forgetKeys(ctx context.Context, door *Door) {
	m.prunedAt = time.Now()
	there := m.partitions()
	partition := func(kv eventlog.KeyValue) (eventlog.Partition, error) {
		n, err := strconv.ParseInt(kv.Key[strings.LastIndexByte(kv.Key, '/')+1:], 10, 64)
		return eventlog.Partition(n), err
	}
	var unknown []eventlog.KeyValue
	in, err := door.incarnation(ctx)
	if err == nil {
		err = m.log.ListAll(ctx, keys.InboxPrefix+door.name+"/", func(kv eventlog.KeyValue) error {
			p, err := partition(kv)
			if err == nil && !there[p] {
				unknown = append(unknown, kv)
			}
			return err
		})
	}
	if err == nil && len(unknown) > 0 {
		err = m.log.RefreshTopics(ctx) // a topic is older than the keys of its partitions: what is not there now was deleted
		there = m.partitions()
	}
	for _, kv := range unknown {
		if p, _ := partition(kv); err != nil || there[p] {
			continue
		}
		if err = m.forgive(ctx, door, in, kv); err == nil {
			_, err = m.log.Append(ctx, eventlog.Entry{Checks: []eventlog.Check{{Key: kv.Key, Version: kv.Version}}, Puts: []eventlog.Put{{Key: kv.Key}}, UsesReserve: true})
		}
	}
	maps.DeleteFunc(m.published, func(p eventlog.Partition, _ published) bool { return !there[p] })
	if err != nil { // a shard is lost, for example
		m.logger.Debug("keys of deleted partitions stay for now", "shard", m.shard, "again", forgetEvery, "err", err)
	}
}

// partitions returns the partitions that this process knows.
func (m *shardMover) partitions() map[eventlog.Partition]bool {
	there := map[eventlog.Partition]bool{}
	for _, t := range m.log.Topics() {
		for _, p := range t.Partitions {
			there[p] = true
		}
	}
	return there
}

// read returns the next rows. A failover may bring back rows that were deleted, so in another
// incarnation the mover forgets what it knows of the keys: they tell which rows are published.
func (m *shardMover) read(ctx context.Context) (chunk []aimed, err error) {
	size := 0
	in, err := m.door.queryIn(ctx, func(columns []any) error {
		size += len(bytesOf(columns[3])) + len(bytesOf(columns[4])) + len(bytesOf(columns[5]))
		if len(chunk) > 0 && size > bytesMax {
			return errFull
		}
		r := aimed{row: rowOf(columns), at: timeOf(columns[7])}
		if columns[8] != nil {
			var err error
			if r.target, err = targetOf(r.id, columns[8:]); err != nil {
				return err
			}
		}
		chunk = append(chunk, r)
		return nil
	}, fmt.Sprintf("SELECT i.%s, t.topic_id, t.partition_number, t.partition_id FROM %s i LEFT JOIN %s t ON t.id = i.id ORDER BY i.id LIMIT %d",
		strings.ReplaceAll(columns, ", ", ", i."), m.door.table("weir_inbox"), m.door.table("weir_inbox_target"), rowsMax))
	if errors.Is(err, errFull) {
		err = nil
	}
	if err == nil && in != m.in {
		clear(m.published)
		m.in = in
	}
	return chunk, err
}

func targetOf(id int64, columns []any) (*target, error) {
	topic, err := eventlog.ParseTopicID(text(columns[0]))
	if err != nil {
		return nil, fmt.Errorf("row %d of weir_inbox_target: %w", id, err)
	}
	return &target{id, topic, int32(columns[1].(int64)), eventlog.Partition(columns[2].(int64))}, nil
}

// check refuses the rows that can never be published, and returns the others.
func (m *shardMover) check(ctx context.Context, chunk []aimed) (good []aimed, err error) {
	for i := range chunk {
		r := &chunk[i]
		if r.target != nil {
			r.event.TopicID, r.event.Partition = r.target.topic, &r.target.number
		}
		why := r.wrong
		if why == nil {
			why = m.choose(ctx, r)
		}
		if r.wrong == nil && why != nil && !mayPass(why) { // perhaps another process has changed the topic, and this one does not know it yet
			if err := m.log.RefreshTopics(ctx); err != nil {
				return good, err
			}
			why = m.choose(ctx, r)
		}
		if why == nil {
			good = append(good, *r)
			continue
		}
		if r.wrong == nil && mayPass(why) {
			return good, why
		}
		if r.target != nil { // it may have been published
			if _, known := m.published[r.target.partition]; !known {
				return nil, m.learn(ctx, r.target.partition)
			}
		}
		if err := m.refuse(ctx, r, why); err != nil {
			return good, err
		}
	}
	return good, nil
}

// choose returns why no partition can be chosen for a row.
func (m *shardMover) choose(ctx context.Context, r *aimed) error {
	return recovered.Do(func() error {
		_, _, err := m.publisher.Choose(ctx, &r.event)
		return err
	})
}

func (m *shardMover) refuse(ctx context.Context, r *aimed, why error) error {
	m.logger.Error("an event published by SQL can never be moved into the log; it is kept in weir_inbox_refused", "shard", m.shard, "id", r.id, "topic", r.event.Topic, "err", why)
	err := m.door.refuse(ctx, m.in, r.id, reason(why))
	if err == nil {
		m.observer.Unmovable()
	}
	return err
}

// aim chooses the partitions of rows that have none yet, and returns the rows with the partitions
// that are durable, whoever chose them. When it returns, a crash of the database cannot undo the
// rows either. It leaves out rows that another mover has published and deleted since they were
// read: their targets are deleted with them, so whoever chooses again may choose another partition.
// A row that is there after its target was written never had another target.
func (m *shardMover) aim(ctx context.Context, chunk []aimed) ([]aimed, error) {
	var chosen []target
	var ids []string
	for _, r := range chunk {
		if r.target != nil {
			continue
		}
		topic, number, err := m.publisher.Choose(ctx, &r.event)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, target{r.id, topic.ID, number, topic.Partitions[number]})
		ids = append(ids, strconv.FormatInt(r.id, 10))
	}
	if err := m.door.aim(ctx, m.in, chosen); err != nil {
		return nil, err
	}
	found := map[int64]*target{}
	if len(ids) > 0 {
		err := m.door.query(ctx, func(columns []any) error {
			id := columns[0].(int64)
			t, err := targetOf(id, columns[1:])
			found[id] = t
			return err
		}, fmt.Sprintf("SELECT t.id, t.topic_id, t.partition_number, t.partition_id FROM %s i JOIN %s t ON t.id = i.id WHERE i.id IN (%s)",
			m.door.table("weir_inbox"), m.door.table("weir_inbox_target"), strings.Join(ids, ",")))
		if err != nil {
			return nil, err
		}
	}
	good := chunk[:0]
	for _, r := range chunk {
		if r.target == nil {
			if r.target = found[r.id]; r.target == nil {
				continue // another mover has published and deleted it
			}
			r.event.TopicID, r.event.Partition = r.target.topic, &r.target.number
		}
		good = append(good, r)
	}
	return good, nil
}

// learn reads the key of a partition, and deletes the rows that it names. It always returns an
// error: rows that were read before may be among them.
func (m *shardMover) learn(ctx context.Context, p eventlog.Partition) error {
	kv, err := m.log.Get(ctx, m.key(p))
	if err != nil {
		return err
	}
	last := published{version: kv.Version}
	if kv.Version > 0 {
		if err := m.forgive(ctx, m.door, m.in, kv); err != nil {
			return err
		}
	}
	m.published[p] = last
	return errLearned
}

// forgive deletes the rows that a key names.
func (m *shardMover) forgive(ctx context.Context, door *Door, in string, kv eventlog.KeyValue) error {
	var last published
	err := json.Unmarshal(kv.Value, &last)
	if err == nil && len(last.IDs) != len(last.At) {
		err = fmt.Errorf("it has %d ids and %d times", len(last.IDs), len(last.At))
	}
	if err != nil {
		return fmt.Errorf("key %s does not hold the ids of rows: %w; restore a backup", kv.Key, err)
	}
	at := map[int64]int64{}
	var ids []string
	for i, id := range last.IDs {
		at[id] = last.At[i]
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	var gone, times []int64
	err = door.query(ctx, func(columns []any) error {
		if id := columns[0].(int64); at[id] == timeOf(columns[1]) {
			gone, times = append(gone, id), append(times, at[id])
		}
		return nil
	}, fmt.Sprintf("SELECT id, published_at FROM %s WHERE id IN (%s)", door.table("weir_inbox"), strings.Join(ids, ",")))
	if err != nil || len(gone) == 0 {
		return err
	}
	return door.remove(ctx, in, gone, times)
}

// key returns the key of the rows that go to a partition. It is on the partition's shard, and moves
// with it.
func (m *shardMover) key(p eventlog.Partition) string {
	return fmt.Sprintf("%s%s/%d", keys.InboxPrefix, m.door.name, p)
}

// publish publishes rows to partitions whose keys are known, exactly once, and deletes them. A
// partition that fails holds up only its own rows, and a row that can never be published is
// refused.
func (m *shardMover) publish(ctx context.Context, chunk []aimed) (int, error) {
	if len(chunk) == 0 {
		return 0, nil
	}
	events := make([]publish.Event, len(chunk))
	for i, r := range chunk {
		events[i] = r.event
	}
	var done []int64
	err := publishRows(ctx, m.publisher, func(ctx context.Context, batches []eventlog.Batch) (err error) {
		done, err = m.append(ctx, chunk, batches)
		if done != nil && errors.Is(err, eventlog.ErrNoPartition) {
			err = fmt.Errorf("%v", err) // or the publisher would publish all of it again
		}
		return err
	}, events...)
	switch {
	case len(done) > 0:
		m.observer.Moved(len(done), time.Since(events[0].Time))
	case refused(err) && len(chunk) == 1:
		return 1, m.refuse(ctx, &chunk[0], err)
	case refused(err): // the rows one by one, because one of them is refused
		rows, errs := 0, []error(nil)
		for i := range chunk {
			n, err := m.publish(ctx, chunk[i:i+1])
			rows, errs = rows+n, append(errs, err)
		}
		return rows, errors.Join(errs...)
	default:
		return 0, err
	}
	var times []int64
	for _, r := range chunk {
		times = append(times, r.at)
	}
	if failed := m.door.remove(ctx, m.in, done, times); failed != nil {
		clear(m.published) // the keys tell what is left to delete
		return 0, failed
	}
	return len(done), err
}

// part is what one partition gets of a chunk.
type part struct {
	batches []eventlog.Batch
	next    published
	ticket  *eventlog.Ticket
}

// append appends the batches of each partition in an entry of its own, and returns the ids of the
// rows that were published.
func (m *shardMover) append(ctx context.Context, chunk []aimed, batches []eventlog.Batch) (done []int64, err error) {
	parts := map[eventlog.Partition]*part{}
	for _, r := range chunk {
		p := parts[r.target.partition]
		if p == nil {
			p = &part{next: published{version: m.published[r.target.partition].version.Next()}}
			parts[r.target.partition] = p
		}
		p.next.IDs, p.next.At = append(p.next.IDs, r.id), append(p.next.At, r.at)
	}
	for _, b := range batches {
		p := parts[b.Partition]
		if p == nil {
			return nil, fmt.Errorf("a batch is for partition %d, which no row has: nothing was published", b.Partition)
		}
		p.batches = append(p.batches, b)
	}
	for to, p := range parts {
		value, err := json.Marshal(p.next)
		if err != nil {
			panic(fmt.Sprintf("cannot encode %v as JSON: %v", p.next, err)) // numbers
		}
		p.ticket = m.log.Submit(ctx, eventlog.Entry{
			Batches: p.batches,
			Checks:  []eventlog.Check{{Key: m.key(to), Version: m.published[to].version}},
			Puts:    []eventlog.Put{{Key: m.key(to), Version: p.next.version, Value: value}},
		})
	}
	var errs []error
	for to, p := range parts {
		_, err := p.ticket.Wait(ctx)
		if err == nil {
			m.published[to] = p.next
			done = append(done, p.next.IDs...)
			continue
		}
		errs = append(errs, err)
		for _, changed := range []error{eventlog.ErrUnsure, eventlog.ErrStale, eventlog.ErrRewound} {
			if errors.Is(err, changed) {
				delete(m.published, to) // read the key again: it tells what was published
			}
		}
	}
	return done, errors.Join(errs...)
}
