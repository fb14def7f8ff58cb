package verify_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

var quiet = slog.New(slog.DiscardHandler)

// rig is a store of one kind, with a node on it that runs until stop.
type rig struct {
	t     *testing.T
	kind  string
	url   string // "": in memory
	store eventlog.Store
	*node.Node
	stop func()
}

// eachStore runs a test on an empty store of each kind.
func eachStore(t *testing.T, test func(r *rig)) {
	t.Helper()
	for _, kind := range everystore.Kinds() {
		t.Run(kind, func(t *testing.T) { test(newRig(t, kind)) })
	}
}

func newRig(t *testing.T, kind string) *rig {
	r := &rig{t: t, kind: kind}
	if kind == "memory" {
		r.store = memoryStore()
	} else {
		r.url = everystore.URL(t, kind)
		r.store = everystore.Open(t, r.url)
	}
	r.start()
	return r
}

// start runs a node on the store: without the tables of SQL doors, which take time to make.
func (r *rig) start() {
	log, err := eventlog.Open(r.t.Context(), r.store, eventlog.Config{Logger: quiet, Poll: 10 * time.Millisecond})
	r.must(err)
	n := &node.Node{Store: r.store, Log: log, Publisher: publish.New(log, publish.Config{Logger: quiet}), Groups: group.New(log, group.Config{Logger: quiet}),
		Streams: stream.New(log, stream.Config{Logger: quiet})}
	n.Queues = queue.New(log, n.Publisher, queue.Config{Logger: quiet})
	r.run(n)
}

func (r *rig) run(n *node.Node) {
	r.Node = n
	ctx, cancel := context.WithCancel(context.Background())
	queuesCtx, endQueues := context.WithCancel(context.Background())
	logCtx, endLog := context.WithCancel(context.Background())
	var uses, queues, logs sync.WaitGroup
	for _, u := range n.Uses() {
		uses.Go(func() { _ = u.Run(ctx) })
	}
	queues.Go(func() { _ = n.Queues.Run(queuesCtx) })
	logs.Go(func() { _ = n.Log.Run(logCtx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		uses.Wait()
		endQueues()
		queues.Wait()
		endLog()
		logs.Wait()
	})
	r.t.Cleanup(r.stop)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// examine returns what an exam of the store finds.
func (r *rig) examine() (found []verify.Finding) {
	r.t.Helper()
	opened := r.store
	if r.kind == "s3" { // as another process sees it
		opened = everystore.Open(r.t, r.url)
	}
	result, err := verify.Run(r.t.Context(), opened, verify.Options{Checks: append(node.Checks(), store.Verify()), Found: func(f verify.Finding) { found = append(found, f) },
		Undecided: func(check string, place verify.Place) { r.t.Errorf("undecided: %s: %s", check, place) }})
	r.must(err)
	if int64(len(found)) != result.Found {
		r.t.Errorf("%d findings, and the result has %d", len(found), result.Found)
	}
	return found
}

// clean fails unless an exam finds nothing.
func (r *rig) clean() {
	r.t.Helper()
	for _, f := range r.examine() {
		r.t.Errorf("found in a healthy store: %s", f)
	}
}

// finds fails unless an exam finds something of a check at a place, and nothing elsewhere. also are
// other checks that may see the same damage.
func (r *rig) finds(check string, place verify.Place, also ...string) {
	r.t.Helper()
	found := r.examine()
	right := false
	for _, f := range found {
		same := f.Place == place
		if place.Key != "" {
			same = f.Key == place.Key
		}
		switch {
		case f.Check == check && same:
			right = true
			if f.Do == "" || f.What == "" {
				r.t.Errorf("the finding does not say what, or what to do: %+v", f)
			}
		case strings.Contains(strings.Join(also, " ")+" ", f.Check+" "):
		default:
			r.t.Errorf("found elsewhere, too: %s", f)
		}
	}
	if !right {
		r.t.Errorf("want a finding of %s at %s; found %v", check, place, found)
	}
}

func (r *rig) topic(name string, partitions int) eventlog.Topic {
	r.t.Helper()
	topic, err := r.Log.CreateTopic(r.t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions})
	r.must(err)
	return topic
}

// put changes keys behind the log's back. A nil value deletes the key.
func (r *rig) put(puts ...eventlog.Put) {
	r.t.Helper()
	for _, p := range puts {
		kv, err := eventlog.Get(r.t.Context(), r.store, p.Key)
		r.must(err)
		p.Version = kv.Version.Next()
		r.commit(eventlog.Entry{Puts: []eventlog.Put{p}})
	}
}

func (r *rig) get(key string) []byte {
	r.t.Helper()
	kv, err := eventlog.Get(r.t.Context(), r.store, key)
	r.must(err)
	if kv.Version == 0 {
		r.t.Fatalf("there is no key %s", key)
	}
	return kv.Value
}

// keyUnder returns the only key under a prefix, or the first.
func (r *rig) keyUnder(prefix string) string {
	r.t.Helper()
	list, err := r.store.List(r.t.Context(), prefix, "", 1)
	r.must(err)
	if len(list) == 0 {
		r.t.Fatalf("there is no key under %s", prefix)
	}
	return list[0].Key
}

func (r *rig) commit(e eventlog.Entry) {
	r.t.Helper()
	out, err := r.store.Commit(r.t.Context(), []eventlog.Entry{e})
	r.must(err)
	r.must(out[0].Err)
}

// batches returns what a partition holds.
func (r *rig) batches(p eventlog.Partition) []eventlog.Placed {
	r.t.Helper()
	read, err := r.store.Read(r.t.Context(), []eventlog.Span{{Partition: p, MaxBytes: 8 << 20}}, 8<<20)
	r.must(err)
	r.must(read[0].Err)
	return read[0].Batches
}

// replace puts other bytes in the place of a stored batch, as compaction would.
func (r *rig) replace(b eventlog.Placed, change func(b *eventlog.Batch)) {
	r.t.Helper()
	changed := b.Batch
	changed.Bytes = append([]byte(nil), b.Bytes...)
	change(&changed)
	key := eventlog.ReplacedKey(b.Partition)
	kv, err := eventlog.Get(r.t.Context(), r.store, key)
	r.must(err)
	r.commit(eventlog.Entry{
		Replaces: []eventlog.Replace{{Partition: b.Partition, From: b.Base, To: b.End(), Batches: []eventlog.Batch{changed}}},
		Puts:     []eventlog.Put{{Key: key, Version: kv.Version.Next(), Value: []byte("{}")}},
	})
}

// statement runs SQL on the store's tables, by the kind of the store. It skips the test on a store
// without SQL.
func (r *rig) statement(of map[string]string) {
	r.t.Helper()
	text, is := of[r.kind]
	if !is {
		r.t.Skipf("there is no way to do this to a store of the kind %s", r.kind)
	}
	switch r.kind {
	case "postgres":
		pgtest.Exec(r.t, r.url, text)
	case "mysql":
		mytest.Exec(r.t, r.url, text)
	case "sqlite":
		file, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(r.url, "sqlite:")+"?_pragma=busy_timeout(30000)")
		r.must(err)
		_, err = file.ExecContext(r.t.Context(), text)
		r.must(err)
		r.must(file.Close())
	}
}

// deleteBatch removes a batch from the store's tables.
func (r *rig) deleteBatch(b eventlog.Placed) {
	r.t.Helper()
	r.statement(map[string]string{
		"sqlite":   fmt.Sprintf("DELETE FROM batch WHERE partition_id = %d AND base_offset = %d", b.Partition, b.Base),
		"mysql":    fmt.Sprintf("DELETE FROM weir_batch WHERE partition_id = %d AND base_offset = %d", b.Partition, b.Base),
		"postgres": fmt.Sprintf("DELETE FROM weir.batch WHERE partition_id = %d AND base_offset = %d", b.Partition, b.Base),
	})
}

// sealed is a batch of n records.
func sealed(t *testing.T, p eventlog.Partition, n int, at int64) eventlog.Batch {
	t.Helper()
	var records []batch.Record
	for i := range n {
		records = append(records, batch.Record{Timestamp: at + int64(i), Key: []byte("key"), Value: fmt.Appendf(nil, "event %d", i)})
	}
	raw, err := batch.Seal(records, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Batch{Partition: p, Records: int32(n), MaxTime: eventlog.Timestamp(at + int64(n) - 1), Bytes: raw}
}

// producedBy makes a batch one of an idempotent producer.
func producedBy(b eventlog.Batch, id int64, sequence int32) eventlog.Batch {
	binary.BigEndian.PutUint64(b.Bytes[43:], uint64(id))
	binary.BigEndian.PutUint16(b.Bytes[51:], 0)
	binary.BigEndian.PutUint32(b.Bytes[53:], uint32(sequence))
	stamp(b.Bytes)
	h, err := batch.Check(b.Bytes)
	if err != nil {
		panic(err)
	}
	b.Producer = &h
	return b
}

// stamp corrects the checksum of a batch that was changed.
func stamp(raw []byte) {
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
}
