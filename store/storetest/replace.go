package storetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

var replaceTests = map[string]func(*testing.T, Harness){
	"ReplacedBatchesHaveTheOffsetsOfTheOldOnes":   testReplace,
	"ReplaceIsPartOfItsEntry":                     testReplaceWhole,
	"ReplaceIsRefusedIfTheBatchesAreNotThere":     testReplaceStale,
	"AReplacementCanBeReplaced":                   testReplaceAgain,
	"ReplacedBatchesAreTrimmedAndFoundByTime":     testReplaceSeekTrim,
	"AReadBesideReplacementsSeesOneStateOfThem":   testReplaceConcurrently,
	"OnlyOneOfTwoReplacementsOfTheSameKeyHappens": testReplaceRace,
}

// replacement replaces [from, to) by batches of equal extent; the last one also takes what is left
// over. All bytes of a batch are its number, from 1.
func replacement(id eventlog.Partition, from, to eventlog.Offset, batches int, size int) eventlog.Replace {
	r := eventlog.Replace{Partition: id, From: from, To: to}
	each := int32(to-from) / int32(batches)
	for i := range batches {
		b := batch(id, each, size)
		if i == batches-1 {
			b.Records = int32(to-from) - each*int32(batches-1)
		}
		for k := range b.Bytes {
			b.Bytes[k] = byte(i + 1)
		}
		r.Batches = append(r.Batches, b)
	}
	return r
}

func (r *rig) replace(replaces ...eventlog.Replace) {
	r.Helper()
	r.do(eventlog.Entry{Replaces: replaces, Puts: replacedPuts(replaces...)})
}

// replacedPuts are the puts that an entry with replacements must have.
func replacedPuts(replaces ...eventlog.Replace) (puts []eventlog.Put) {
	for _, r := range replaces {
		puts = append(puts, eventlog.Put{Key: eventlog.ReplacedKey(r.Partition), Version: eventlog.Version(0).Next(), Value: []byte("replaced")})
	}
	return puts
}

// expectBatches compares a partition's batches, each as its base offset, extent and size.
func (r *rig) expectBatches(id eventlog.Partition, want ...[3]int) {
	r.Helper()
	var got [][3]int
	var size int64
	for _, b := range r.all(id) {
		got = append(got, [3]int{int(b.Base), int(b.Records), len(b.Bytes)})
		size += int64(len(b.Bytes))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("partition %d holds %v, want %v", id, got, want)
	}
	if held := r.bounds(id).Bytes; held != size {
		r.Errorf("partition %d says it holds %d bytes, and holds %d", id, held, size)
	}
}

func testReplace(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	for range 6 {
		r.publish(batch(1, 10, 20_000), batch(2, 10, 100))
	}
	_, mark := r.moved(r.store, eventlog.Mark{})
	r.replace(replacement(1, 10, 40, 1, 9000))
	r.expectBatches(1, [3]int{0, 10, 20_000}, [3]int{10, 30, 9000}, [3]int{40, 10, 20_000}, [3]int{50, 10, 20_000})
	if got := r.read(eventlog.Span{Partition: 1, From: 35, MaxBytes: 1})[0]; len(got.Batches) != 1 || got.Batches[0].Base != 10 || got.Batches[0].Bytes[0] != 1 {
		t.Errorf("read from 35 after the replacement: %+v", got)
	}
	if moved, _ := r.moved(r.store, mark); moved[1].Bytes != 69_000 {
		t.Errorf("after a replacement Moved says %+v, want partition 1 with 69000 bytes", moved)
	}
	r.replace(replacement(1, 40, 60, 4, 10), replacement(2, 0, 60, 2, 5)) // to the end, and two partitions
	r.reopen()
	r.publish(batch(1, 1, 7))
	r.expectBatches(1, [3]int{0, 10, 20_000}, [3]int{10, 30, 9000}, [3]int{40, 5, 10}, [3]int{45, 5, 10}, [3]int{50, 5, 10}, [3]int{55, 5, 10}, [3]int{60, 1, 7})
	r.expectBatches(2, [3]int{0, 30, 5}, [3]int{30, 30, 5})
	// The budget of a read counts the bytes that are there now.
	if got := r.read(eventlog.Span{Partition: 1, From: 10, MaxBytes: 9047})[0]; len(got.Batches) != 6 {
		t.Errorf("a read of 9047 bytes returned %d batches, want 6", len(got.Batches))
	}
}

func testReplaceWhole(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.publish(batch(1, 10, 100), batch(1, 10, 100))
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte("v")})
	entry := eventlog.Entry{
		Checks:   []eventlog.Check{{Key: "k", Version: 7}},
		Puts:     []eventlog.Put{{Key: "k", Version: 2, Value: []byte("w")}},
		Replaces: []eventlog.Replace{replacement(1, 0, 20, 1, 10)},
	}
	if o := r.commit(entry)[0]; !errors.Is(o.Err, eventlog.ErrStale) {
		t.Fatalf("an entry with a stale check: %v, want ErrStale", o.Err)
	}
	entry.Checks[0].Version = 1
	wrong := entry
	wrong.Replaces = []eventlog.Replace{replacement(1, 0, 20, 1, 10), replacement(3, 0, 20, 1, 10)}
	if o := r.commit(wrong)[0]; !errors.Is(o.Err, eventlog.ErrNoPartition) {
		t.Fatalf("a replacement in a partition that does not exist: %v, want ErrNoPartition", o.Err)
	}
	r.openPartitions(3)
	if o := r.commit(wrong)[0]; !errors.Is(o.Err, eventlog.ErrStale) {
		t.Fatalf("a replacement of nothing: %v, want ErrStale", o.Err)
	}
	r.expectBatches(1, [3]int{0, 10, 100}, [3]int{10, 10, 100})
	if kv := r.list("k", "", 1)[0]; kv.Version != 1 {
		t.Errorf("refused entries left the key at %+v", kv)
	}
	entry.Puts = append(entry.Puts, replacedPuts(entry.Replaces...)...)
	r.do(entry)
	r.expectBatches(1, [3]int{0, 20, 10})
	if kv := r.list("k", "", 1)[0]; kv.Version != 2 || string(kv.Value) != "w" {
		t.Errorf("the entry left the key at %+v", kv)
	}
}

func testReplaceStale(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	for range 5 {
		r.publish(batch(1, 10, 100))
	}
	r.trim(1, 15)
	for _, c := range []struct{ from, to eventlog.Offset }{{0, 10}, {0, 20}, {10, 20}, {10, 30}, {21, 30}, {20, 29}, {20, 31}, {15, 20}, {25, 40}, {20, 60}, {50, 60}, {60, 70}} {
		if o := r.commit(eventlog.Entry{Replaces: []eventlog.Replace{replacement(1, c.from, c.to, 1, 10)}})[0]; !errors.Is(o.Err, eventlog.ErrStale) {
			t.Errorf("replace [%d, %d): %v, want ErrStale", c.from, c.to, o.Err)
		}
	}
	r.replace(replacement(1, 20, 40, 1, 10))
	if o := r.commit(eventlog.Entry{Replaces: []eventlog.Replace{replacement(1, 20, 30, 1, 10)}})[0]; !errors.Is(o.Err, eventlog.ErrStale) {
		t.Errorf("replace what was replaced: %v, want ErrStale", o.Err)
	}
	r.forget(1)
	if o := r.commit(eventlog.Entry{Replaces: []eventlog.Replace{replacement(1, 20, 40, 1, 10)}})[0]; !errors.Is(o.Err, eventlog.ErrNoPartition) {
		t.Errorf("replace in a deleted partition: %v, want ErrNoPartition", o.Err)
	}
	bad := replacement(1, 20, 40, 1, 10)
	bad.Batches[0].Records--
	if _, err := r.store.Commit(r.ctx, []eventlog.Entry{{Replaces: []eventlog.Replace{bad}}}); err == nil {
		t.Errorf("a replacement that does not span its offsets was accepted")
	}
}

func testReplaceAgain(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	for range 20 {
		r.publish(batch(1, 5, 9000))
	}
	for round := range 4 { // in steps, as compaction does, each round with fewer and smaller batches
		step := eventlog.Offset(10 * (1 << round))
		for from := eventlog.Offset(0); from < 100; from += step {
			r.replace(replacement(1, from, min(from+step, 100), 1, 8000-1000*round))
		}
		r.publish(batch(1, 100, 1)) // the partition goes on in between
		r.trim(1, 0)
	}
	r.reopen()
	want := [][3]int{{0, 80, 5000}, {80, 20, 5000}, {100, 100, 1}, {200, 100, 1}, {300, 100, 1}, {400, 100, 1}}
	r.expectBatches(1, want...)
	r.replace(replacement(1, 80, 500, 2, 30_000)) // larger than what it replaces
	r.expectBatches(1, [3]int{0, 80, 5000}, [3]int{80, 210, 30_000}, [3]int{290, 210, 30_000})
}

func testReplaceSeekTrim(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	timed := func(b eventlog.Batch, at eventlog.Timestamp) eventlog.Batch {
		b.MaxTime = at
		return b
	}
	for i := range 10 {
		r.publish(timed(batch(1, 10, 1000), eventlog.Timestamp(100*i)))
	}
	in := replacement(1, 30, 60, 2, 100) // [30, 45), [45, 60): the times 300, 400 and 500 go, and 0 and 410 come
	in.Batches[0].MaxTime, in.Batches[1].MaxTime = 0, 410
	r.replace(in)
	for at, want := range map[eventlog.Timestamp]eventlog.Offset{100: 10, 200: 20, 201: 45, 300: 45, 410: 45, 411: 60, 600: 60, 601: 70, 901: 100} {
		if got := r.seek(1, eventlog.Goal{At: at}); got != want {
			t.Errorf("seek of the time %d found %d, want %d", at, got, want)
		}
	}
	for bytes, want := range map[int64]eventlog.Offset{1: 90, 1000: 90, 4000: 60, 4001: 45, 4100: 45, 4101: 30, 4200: 30, 4201: 20, 7200: 0, 9000: 0} {
		if got := r.seek(1, eventlog.Goal{Bytes: bytes}); got != want {
			t.Errorf("seek of %d bytes found %d, want %d", bytes, got, want)
		}
	}
	for _, c := range []struct {
		before eventlog.Offset
		bytes  int64
	}{{10, 6200}, {30, 4200}, {44, 4200}, {45, 4100}, {60, 4000}, {90, 1000}, {100, 0}} {
		r.trim(1, c.before)
		if got := r.bounds(1); got.First != c.before || got.Next != 100 || got.Bytes != c.bytes {
			t.Errorf("trimmed below %d: %+v, want %d bytes", c.before, got, c.bytes)
		}
	}
}

// Two readers read the partition again and again while its batches are replaced: each read is
// without gaps. Each round replaces from the first offset to the last. So in one read no batch is
// from a later round than the batch before it.
func testReplaceConcurrently(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	for range 50 {
		r.publish(batch(1, 4, 2000))
	}
	done := make(chan struct{})
	var g errgroup.Group
	for range 2 {
		g.Go(func() error {
			for {
				slices, err := r.store.Read(r.ctx, []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20)
				if err != nil {
					return err
				}
				if slices[0].Err != nil {
					return slices[0].Err
				}
				at, round := eventlog.Offset(0), 255
				for _, b := range slices[0].Batches {
					if b.Base != at || int(b.Bytes[0]) > round {
						return fmt.Errorf("a batch of round %d at %d, after a batch of round %d that ends at %d", b.Bytes[0], b.Base, round, at)
					}
					at, round = b.End(), int(b.Bytes[0])
				}
				if at < 200 {
					return fmt.Errorf("a read ends at %d", at)
				}
				select {
				case <-done:
					return nil
				default:
				}
			}
		})
	}
	for round := range 5 {
		for from := eventlog.Offset(0); from < 200; from += 40 {
			in := replacement(1, from, from+40, 10, 1900-100*round)
			for i := range in.Batches {
				in.Batches[i].Bytes[0] = byte(round + 1)
			}
			r.replace(in)
		}
	}
	close(done)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func testReplaceRace(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.publish(batch(1, 10, 1000))
	stores := []eventlog.Store{r.store, r.another(), r.another()}
	for round := range 10 {
		won := make([]bool, len(stores))
		var g errgroup.Group
		for i, s := range stores {
			g.Go(func() error {
				in := replacement(1, 0, 10, 1, 500)
				in.Batches[0].Bytes[0] = byte(i)
				outcomes, err := s.Commit(r.ctx, []eventlog.Entry{{
					Checks:   []eventlog.Check{{Key: "pass", Version: eventlog.Version(round)}},
					Puts:     append(replacedPuts(in), eventlog.Put{Key: "pass", Version: eventlog.Version(round + 1), Value: []byte{byte(i)}}),
					Replaces: []eventlog.Replace{in},
				}})
				if err != nil {
					return err
				}
				won[i] = outcomes[0].Err == nil
				if err := outcomes[0].Err; err != nil && !errors.Is(err, eventlog.ErrStale) {
					return err
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		winner := r.list("pass", "", 1)[0].Value[0]
		for i, w := range won {
			if w != (byte(i) == winner) {
				t.Errorf("round %d: the store says %d won, and the answers say %v", round, winner, won)
			}
		}
		if got := r.all(1)[0].Bytes[0]; got != winner {
			t.Errorf("round %d: %d put the key, and %d replaced the batch", round, winner, got)
		}
	}
}

// replace replaces a random run of a partition's batches, or a random range of offsets, which
// mostly is refused, on the store and on the model, and compares the outcomes.
func (p *pair) replace() string {
	id := p.partition()
	read, _ := p.model.Read(p.ctx, []eventlog.Span{{Partition: id, MaxBytes: 1}}, 1)
	bounds := read[0].Bounds
	read, _ = p.model.Read(p.ctx, []eventlog.Span{{Partition: id, From: bounds.First, MaxBytes: 1 << 20}}, 1<<20)
	batches, missing := read[0].Batches, errors.Is(read[0].Err, eventlog.ErrNoPartition)
	r := eventlog.Replace{Partition: id, From: eventlog.Offset(p.random.IntN(200)), To: eventlog.Offset(p.random.IntN(200))}
	if len(batches) > 0 && p.random.IntN(4) > 0 {
		i := p.random.IntN(len(batches))
		k := i + p.random.IntN(len(batches)-i)
		r.From, r.To = batches[i].Base, batches[k].Base+eventlog.Offset(batches[k].Records)
	}
	r.To = max(r.To, r.From+1)
	newest := eventlog.Timestamp(1000)
	if own := within(batches, r.From, r.To); len(own) > 0 {
		newest = slices.MaxFunc(own, func(a, b eventlog.Placed) int { return cmp.Compare(a.MaxTime, b.MaxTime) }).MaxTime
	}
	for at := r.From; at < r.To; {
		n := 1 + p.random.Int32N(int32(r.To-at))
		r.Batches = append(r.Batches, eventlog.Batch{
			Partition: id, Records: n, MaxTime: min(newest, eventlog.Timestamp(p.random.IntN(1000))-1),
			Bytes: bytes.Repeat([]byte{byte(p.random.IntN(256))}, 1+p.random.IntN(9000)),
		})
		at += eventlog.Offset(n)
	}
	entry := eventlog.Entry{Replaces: []eventlog.Replace{r}}
	key := p.key()
	entry.Checks = []eventlog.Check{{Key: key, Version: p.versions[key]}}
	entry.Puts = append(replacedPuts(r), eventlog.Put{Key: key, Version: p.versions[key] + 1, Value: []byte("replaced")})
	got, err := p.store.Commit(p.ctx, []eventlog.Entry{entry})
	want, _ := p.model.Commit(p.ctx, []eventlog.Entry{entry})
	what := fmt.Sprintf("replace [%d, %d) of partition %d", r.From, r.To, id)
	if err != nil {
		p.Errorf("%s: %v", what, err)
		return what
	}
	if missing && errors.Is(want[0].Err, eventlog.ErrStale) && errors.Is(got[0].Err, eventlog.ErrNoPartition) { // both are true, and a store may look at partitions first
		want[0].Err = got[0].Err
	}
	p.same(what, want, got)
	return what
}

// within returns the batches that begin in [from, to).
func within(batches []eventlog.Placed, from, to eventlog.Offset) (in []eventlog.Placed) {
	for _, b := range batches {
		if b.Base >= from && b.Base < to {
			in = append(in, b)
		}
	}
	return in
}
