package s3

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// encodeOld returns the state as a snapshot of the first format.
func (st *state) encodeOld() []byte {
	var w writer
	w.string(st.store)
	w.string(st.life)
	w.int(st.number)
	w.bytes(st.tip.hash[:])
	w.int(int64(st.time))
	keys := slices.Sorted(maps.Keys(st.objects))
	list(&w, keys, (*writer).string)
	list(&w, slices.Sorted(maps.Keys(st.partitions)), func(w *writer, id eventlog.Partition) {
		p := st.partitions[id]
		w.int(int64(id))
		w.int(int64(p.first))
		w.int(int64(p.next))
		w.int(p.moved)
		list(w, p.held, func(w *writer, h held) {
			w.int(int64(h.base))
			w.uint(uint64(h.records))
			w.int(int64(h.maxTime))
			w.uint(uint64(h.crc))
			w.uint(uint64(slices.Index(keys, h.object.key)))
			w.int(h.at)
			w.uint(uint64(h.size))
		})
	})
	w.uint(uint64(st.keys.Len()))
	st.keys.Scan(func(key string, v value) bool { writeValue(&w, key, v); return true })
	object, _ := seal(magicSnapshotOld, w.b)
	return object
}

// A bucket whose snapshots are of the first format is opened, and is collected.
func TestASnapshotOfTheFirstFormatIsRead(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	mustPublish(t, s, "a", "b", "c")
	if err := putKey(t, s, "key"); err != nil {
		t.Fatal(err)
	}
	f.Objects[fmt.Sprintf("snapshot/%020d", s.st.number)] = stored{Body: s.st.encodeOld(), Modified: time.Now()}
	s.newest = s.st.number
	for n := int64(1); n < s.st.number; n++ { // as if they had been deleted; the batches are read where they lie
		if n > 3 {
			delete(f.Objects, commitKey(n))
		}
	}
	fresh := opened(t, f)
	expect(t, fresh, "a", "b", "c")
	if fresh.newest != 4 || !slices.Equal(has(t, fresh), []string{"key"}) {
		t.Errorf("the newest snapshot is of commit %d, with the keys %v", fresh.newest, has(t, fresh))
	}
	tended(t, fresh, f, "d", "e")
	if keys := f.Keys("snapshot/"); len(keys) != 2 || !strings.Contains(slices.Min(keys), "-") {
		t.Errorf("the snapshots are %v, want two of the second format", keys)
	}
	expect(t, opened(t, f), "a", "b", "c", "d", "e")
}

// A state that does not fit in one part is the same after it was read.
func TestASnapshotHasParts(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	var entry eventlog.Entry
	for i := range 3 * partSize >> 20 {
		entry.Puts = append(entry.Puts, eventlog.Put{Key: fmt.Sprint("key ", i), Version: 1, Value: make([]byte, 1<<20)})
	}
	if out, err := s.Commit(t.Context(), []eventlog.Entry{entry}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	mustPublish(t, s, "a")
	st := s.st
	many := st.partitions[1]
	for range partBatches {
		h := many.held[0]
		h.base = many.next
		h.object.names++
		many.held, many.next = append(many.held, h), many.next+1
		many.bytes += int64(h.size)
	}
	if err := s.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(f.Keys("part/")); n < 4 {
		t.Errorf("it has %d parts", n)
	}
	fresh := opened(t, f)
	for _, compared := range []struct{ got, want any }{
		{fresh.st.keys.Keys(), st.keys.Keys()}, {fresh.st.keys.Values(), st.keys.Values()},
		{fresh.st.partitions[1].held, many.held}, {fresh.st.partitions[1].bounds(1), many.bounds(1)},
		{len(fresh.st.objects), len(st.objects)}, {fresh.st.incarnation(), st.incarnation()}, {fresh.st.time, st.time},
	} {
		if !reflect.DeepEqual(compared.got, compared.want) {
			t.Error("the state that was read is another one")
		}
	}
}

// A snapshot is encoded while commits go on: nothing that it shares with the state is changed.
func TestAFrozenStateStaysAsItIs(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	mustPublish(t, s, "a", "b", "c")
	if err := putKey(t, s, "key"); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	frozen := s.st.frozen()
	s.mu.Unlock()
	encoded := func() (all []byte) {
		_, err := frozen.parts(func(head []byte) error { all = append(all, head...); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := encoded()
	mustPublish(t, s, "d", "e")
	if moved, err := s.compact(t.Context(), 1); err != nil || !moved {
		t.Fatal(moved, err)
	}
	if err := putKey(t, s, "another key"); err != nil {
		t.Fatal(err)
	}
	if err := storetest.Trim(t.Context(), s, 1, 2); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(encoded(), before) {
		t.Error("later commits changed it")
	}
}

// slowParts is a bucket to which a part of a snapshot takes long, either way.
type slowParts struct {
	bucket
	each time.Duration
}

func (b slowParts) wait(key string) {
	if strings.HasPrefix(key, "part/") {
		<-time.After(b.each)
	}
}

func (b slowParts) put(ctx context.Context, key string, body []byte) (answer, error) {
	b.wait(key)
	return b.bucket.put(ctx, key, body)
}

func (b slowParts) get(ctx context.Context, key string, from, size int64) ([]byte, answer, error) {
	b.wait(key)
	return b.bucket.get(ctx, key, from, size)
}

// On a slow line a snapshot takes far longer than a request may go without progress, than a caller
// waits, and than a quarter of grace. It is written all the same while commits go on, and is read.
func TestASnapshotOnASlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		slow := func() *Store {
			clock := &clock{}
			s, err := open(t.Context(), quick, slowParts{given{f, clock}, 10 * time.Minute}, clock, Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := slow()
		defer s.Close()
		var entry eventlog.Entry
		for i := range 6 * partSize >> 20 {
			entry.Puts = append(entry.Puts, eventlog.Put{Key: fmt.Sprint("key ", i), Version: 1, Value: make([]byte, 1<<20)})
		}
		if out, err := s.Commit(t.Context(), []eventlog.Entry{entry}); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		done := make(chan error, 1)
		go func() { done <- s.snapshot(t.Context()) }()
		commits, began := 0, time.Now()
		for written := false; !written; commits++ {
			asked := time.Now()
			mustPublish(t, s, fmt.Sprint(commits))
			if took := time.Since(asked); took > time.Second {
				t.Errorf("while a snapshot is written a commit takes %v", took)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				written = true
			case <-time.After(time.Minute):
			}
		}
		if took := time.Since(began); took < quick.grace/2 || commits < 30 {
			t.Errorf("it took %v, and %d commits: the test tests little", took, commits)
		}
		fresh := slow()
		defer fresh.Close()
		if n := len(has(t, fresh)); n != len(entry.Puts) {
			t.Errorf("%d keys were read, want %d", n, len(entry.Puts))
		}
		if fresh.newest == 0 || fresh.st.partitions[1].next != eventlog.Offset(commits) {
			t.Errorf("read from the snapshot of commit %d on, up to offset %d, want %d", fresh.newest, fresh.st.partitions[1].next, commits)
		}
	})
}
