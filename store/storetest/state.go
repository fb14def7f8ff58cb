package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
)

var stateTests = map[string]func(*testing.T, Harness){
	"APutReplacesVersionAndValue":        testPutReplaces,
	"ANilValueForgetsTheKey":             testForgetKey,
	"AnEmptyValueIsAValue":               testEmptyValue,
	"PutsCarryBaseOffsets":               testAddBase,
	"AStaleCheckHoldsTheEntryBack":       testStale,
	"ACheckAtZeroDemandsNoKey":           testCheckZero,
	"ASecondWriterIsStale":               testSecondWriter,
	"ListIsInByteOrderAndStartsAfter":    testListOrder,
	"ListTakesPrefixesAsTheyAre":         testListPrefix,
	"GetAnswersInTheOrderOfTheKeys":      testGet,
	"GetEndsWhereValuesAreTooMany":       testGetBytes,
	"ValuesAreBytes":                     testValuesAreBytes,
	"AgeGrowsAndStartsAnewWithEachPut":   testAge,
	"AFlushOfPutsNeedsNoPartition":       testPutsAlone,
	"ManyChecksInOneEntryAreAllOrNone":   testManyChecks,
	"VersionsMayBeLargeAndMayGoAnyWhere": testVersions,
}

func testPutReplaces(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte("one")}, eventlog.Put{Key: "l", Version: 1, Value: []byte("other")})
	r.put(eventlog.Put{Key: "k", Version: 2, Value: []byte("two")})
	got := r.list("", "", 10)
	if len(got) != 2 || got[0].Key != "k" || got[0].Version != 2 || string(got[0].Value) != "two" || string(got[1].Value) != "other" {
		t.Errorf("keys: %+v", got)
	}
}

func testForgetKey(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte("v")})
	r.put(eventlog.Put{Key: "k", Version: 2}, eventlog.Put{Key: "never there", Version: 1})
	if got := r.list("", "", 10); len(got) != 0 {
		t.Errorf("forgotten keys are listed: %+v", got)
	}
	r.do(eventlog.Entry{Checks: []eventlog.Check{{Key: "k"}}, Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("again")}}})
	if got := r.list("", "", 10); len(got) != 1 || string(got[0].Value) != "again" {
		t.Errorf("put after forgetting: %+v", got)
	}
}

func testEmptyValue(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte{}})
	if got := r.list("", "", 10); len(got) != 1 || len(got[0].Value) != 0 || got[0].Version != 1 {
		t.Errorf("key with an empty value: %+v", got)
	}
}

func testAddBase(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	r.publish(batch(1, 90, 10), batch(2, 7, 10))
	r.do(eventlog.Entry{
		Batches: []eventlog.Batch{batch(1, 10, 10), {Partition: 3}, batch(2, 1, 10), batch(1, 1, 10)},
		Puts: []eventlog.Put{
			{Key: "a", Version: 1, Value: []byte("first "), AddBase: 1},
			{Key: "b", Version: 1, Value: []byte{}, AddBase: 3},
			{Key: "c", Version: 1, Value: []byte{0xff, 0}, AddBase: 4},
			{Key: "d", Version: 1, Value: []byte("opens "), AddBase: 2},
			{Key: "e", Version: 1, Value: []byte("none")},
		},
	})
	var got []string
	for _, kv := range r.list("", "", 10) {
		got = append(got, string(kv.Value))
	}
	if want := []string{"first 90", "7", "\xff\x00100", "opens 0", "none"}; !slices.Equal(got, want) {
		t.Errorf("values %q, want %q", got, want)
	}
}

func testStale(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.put(eventlog.Put{Key: "k", Version: 5, Value: []byte("v")})
	for _, check := range []eventlog.Check{{Key: "k", Version: 4}, {Key: "k", Version: 6}, {Key: "k"}, {Key: "absent", Version: 1}} {
		o := r.commit(eventlog.Entry{
			Batches: []eventlog.Batch{{Partition: 2}, batch(1, 1, 10)},
			Checks:  []eventlog.Check{check},
			Puts:    []eventlog.Put{{Key: "k", Version: 9, Value: []byte("w")}, {Key: "l", Version: 1, Value: []byte("w")}},
		})[0]
		if !errors.Is(o.Err, eventlog.ErrStale) {
			t.Errorf("check %+v: %v, want ErrStale", check, o.Err)
		}
	}
	if got := r.list("", "", 10); len(got) != 1 || got[0].Version != 5 {
		t.Errorf("refused entries changed keys: %+v", got)
	}
	if got := r.bounds(1); got.Next != 0 {
		t.Errorf("refused entries left records: %+v", got)
	}
	if slice := r.read(eventlog.Span{Partition: 2})[0]; !errors.Is(slice.Err, eventlog.ErrNoPartition) {
		t.Errorf("refused entries opened a partition: %+v", slice)
	}
	r.do(eventlog.Entry{Checks: []eventlog.Check{{Key: "k", Version: 5}}, Puts: []eventlog.Put{{Key: "k", Version: 6, Value: []byte("w")}}})
}

func testCheckZero(t *testing.T, h Harness) {
	r := newRig(t, h)
	create := eventlog.Entry{
		Batches: []eventlog.Batch{{Partition: 1}},
		Checks:  []eventlog.Check{{Key: "name"}},
		Puts:    []eventlog.Put{{Key: "name", Version: 1, Value: []byte("v")}},
	}
	r.do(create)
	if o := r.commit(create)[0]; !errors.Is(o.Err, eventlog.ErrStale) {
		t.Errorf("created twice: %v, want ErrStale", o.Err)
	}
}

func testSecondWriter(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.put(eventlog.Put{Key: "owner", Version: 1, Value: []byte("first")})
	second := r.another()
	entry := eventlog.Entry{
		Batches: []eventlog.Batch{batch(1, 1, 10)},
		Checks:  []eventlog.Check{{Key: "owner", Version: 1}},
		Puts:    []eventlog.Put{{Key: "owner", Version: 2, Value: []byte("second")}},
	}
	outcomes, err := second.Commit(r.ctx, []eventlog.Entry{entry})
	if err != nil || outcomes[0].Err != nil {
		t.Fatalf("the second store's entry: %+v, %v", outcomes, err)
	}
	if o := r.commit(entry)[0]; !errors.Is(o.Err, eventlog.ErrStale) {
		t.Errorf("the first store's entry: %v, want ErrStale", o.Err)
	}
	if base := r.publish(batch(1, 1, 10))[0]; base != 1 {
		t.Errorf("after the other store's record comes offset %d, want 1", base)
	}
}

func testListOrder(t *testing.T, h Harness) {
	r := newRig(t, h)
	keys := []string{"a", "A", "aa", "a/b", "a-b", "ab", "a/", "z", "Ä", "ä", "é", "日本", "😀", "10", "9", " ", "~", "a\tb"}
	for _, key := range keys {
		r.put(eventlog.Put{Key: key, Version: 1, Value: []byte(key)})
	}
	slices.Sort(keys)
	if got := keysOf(r.list("", "", 100)); !slices.Equal(got, keys) {
		t.Errorf("keys %q, want %q", got, keys)
	}
	for i, after := range keys {
		if got := keysOf(r.list("", after, 3)); !slices.Equal(got, keys[i+1:min(i+4, len(keys))]) {
			t.Errorf("three after %q: %q", after, got)
		}
	}
	if got := keysOf(r.list("a", "a/", 100)); !slices.Equal(got, []string{"a/b", "aa", "ab"}) {
		t.Errorf("under a, after a/: %q", got)
	}
	if got := r.list("a", "b", 100); len(got) != 0 {
		t.Errorf("after the last under a prefix: %q", keysOf(got))
	}
	if got := r.list("b", "a", 100); len(got) != 0 {
		t.Errorf("under a prefix that nothing has: %q", keysOf(got))
	}
	if got := keysOf(r.list("z", "a", 100)); !slices.Equal(got, []string{"z"}) {
		t.Errorf("under z, after a key before it: %q", got)
	}
	if got := r.list("", "", 0); len(got) != 0 {
		t.Errorf("at most none: %q", keysOf(got))
	}
}

func testListPrefix(t *testing.T, h Harness) {
	r := newRig(t, h)
	for _, key := range []string{"a%b", "a_b", "axb", `a\b`, "a'b", `a"b`, "a*b", "a[b", "A%b", "a\U0010ffffb", "a\U0010ffff"} {
		r.put(eventlog.Put{Key: key + "/1", Version: 1, Value: []byte("v")}, eventlog.Put{Key: key + "/2", Version: 1, Value: []byte("v")})
	}
	for _, prefix := range []string{"a%b", "a_", `a\`, "a'", `a"`, "a*", "a[", "A", "a\U0010ffffb"} {
		if got := keysOf(r.list(prefix, "", 100)); len(got) != 2 || got[0][:len(prefix)] != prefix {
			t.Errorf("under %q: %q, want two", prefix, got)
		}
	}
	if got := keysOf(r.list("a\U0010ffff", "", 100)); len(got) != 4 {
		t.Errorf("under the highest letter: %q, want four", got)
	}
}

func testValuesAreBytes(t *testing.T, h Harness) {
	r := newRig(t, h)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	values := [][]byte{every, []byte(`{"json":true}`), make([]byte, 200_000), []byte("12e3"), []byte("'")}
	for i, value := range values {
		r.put(eventlog.Put{Key: fmt.Sprint(i), Version: 1, Value: value})
	}
	for i, kv := range r.list("", "", 100) {
		if !slices.Equal(kv.Value, values[i]) {
			t.Errorf("value %d came back changed: %.100q", i, kv.Value)
		}
	}
}

func testAge(t *testing.T, h Harness) {
	r := newRig(t, h)
	// A store's clock may be another machine's, and may count in milliseconds.
	const slack = time.Second
	age := func() time.Duration { return r.list("k", "", 1)[0].Age }
	began := time.Now()
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte("v")})
	first := age()
	if first < 0 || first > time.Since(began)+slack {
		t.Errorf("age right after the put: %v", first)
	}
	kv := r.list("k", "", 1)[0]
	now := time.UnixMilli(int64(kv.Now))
	if latest := time.UnixMilli(int64(max(kv.Now, kv.NowMax))); now.After(time.Now().Add(slack)) || latest.Before(began.Add(-slack)) || latest.Sub(now) > 3*slack {
		t.Errorf("the store's clock is between %v and %v, and this machine's is at %v", now, latest, time.Now())
	}
	for age() < first+50*time.Millisecond {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("age stands at %v after %v", age(), time.Since(began))
		}
	}
	again := time.Now()
	r.put(eventlog.Put{Key: "k", Version: 2, Value: []byte("v")})
	if got := age(); got < 0 || got > time.Since(again)+20*time.Millisecond {
		t.Errorf("age right after the second put: %v", got)
	}
}

func testPutsAlone(t *testing.T, h Harness) {
	r := newRig(t, h)
	flush := make([]eventlog.Entry, 50)
	for i := range flush {
		flush[i].Puts = []eventlog.Put{{Key: fmt.Sprint("k", i), Version: 1, Value: []byte("v")}}
	}
	for i, o := range r.commit(flush...) {
		if o.Err != nil {
			t.Errorf("entry %d: %v", i, o.Err)
		}
	}
	if got := len(r.list("k", "", 100)); got != 50 {
		t.Errorf("%d keys, want 50", got)
	}
}

func testManyChecks(t *testing.T, h Harness) {
	r := newRig(t, h)
	var entry eventlog.Entry
	for i := range 20 {
		key := fmt.Sprintf("k%02d", i)
		r.put(eventlog.Put{Key: key, Version: 1, Value: []byte("v")})
		entry.Checks = append(entry.Checks, eventlog.Check{Key: key, Version: 1})
		entry.Puts = append(entry.Puts, eventlog.Put{Key: key, Version: 2, Value: []byte("w")})
	}
	r.put(eventlog.Put{Key: "k19", Version: 3, Value: []byte("moved")})
	if o := r.commit(entry)[0]; !errors.Is(o.Err, eventlog.ErrStale) {
		t.Fatalf("one of twenty checks is stale: %v, want ErrStale", o.Err)
	}
	for _, kv := range r.list("k", "", 19) {
		if kv.Version != 1 {
			t.Errorf("%s is at version %d, want 1", kv.Key, kv.Version)
		}
	}
}

func testVersions(t *testing.T, h Harness) {
	r := newRig(t, h)
	for _, v := range []eventlog.Version{1, 1 << 62, 3} {
		r.put(eventlog.Put{Key: "k", Version: v, Value: []byte("v")})
		r.do(eventlog.Entry{Checks: []eventlog.Check{{Key: "k", Version: v}}})
	}
}

func keysOf(list []eventlog.KeyValue) []string {
	keys := make([]string, len(list))
	for i, kv := range list {
		keys[i] = kv.Key
	}
	return keys
}

func testGet(t *testing.T, h Harness) {
	r := newRig(t, h)
	long := strings.Repeat("ä", 900)
	for i, key := range []string{"b", "a", "a/b", "日本", " ", long, "gone"} {
		r.put(eventlog.Put{Key: key, Version: eventlog.Version(i + 1), Value: []byte("value of " + key)})
	}
	r.put(eventlog.Put{Key: "gone", Version: 9})
	r.put(eventlog.Put{Key: "empty", Version: 5, Value: []byte{}})
	asked := []string{"b", "no such key", "a/b", "a", "b", "A", "a ", "gone", "empty", "日本", " ", "", long, "a/", "\xff", "a\x00", strings.Repeat("k", 5000)}
	want := map[string]eventlog.Version{"b": 1, "a": 2, "a/b": 3, "日本": 4, " ": 5, long: 6, "empty": 5}
	got := r.get(1<<20, asked...)
	if len(got) != len(asked) {
		t.Fatalf("%d keys were read, and %d asked for", len(got), len(asked))
	}
	for i, kv := range got {
		value := "value of " + asked[i]
		if want[asked[i]] == 0 || asked[i] == "empty" {
			value = ""
		}
		if kv.Key != asked[i] || kv.Version != want[asked[i]] || string(kv.Value) != value {
			t.Errorf("key %.20q: %.20q at version %d, value %.30q; want version %d, value %.30q", asked[i], kv.Key, kv.Version, kv.Value, want[asked[i]], value)
		}
		if is := kv.Version != 0; is != (kv.Now != 0) || kv.Age < 0 || !is && kv.Age != 0 {
			t.Errorf("key %.20q at version %d: read at %d, age %v", kv.Key, kv.Version, kv.Now, kv.Age)
		}
	}
	if got := r.get(1 << 20); len(got) != 0 {
		t.Errorf("no keys: %+v", got)
	}
	kvs, err := r.another().Get(r.ctx, []string{"a"}, 0)
	if err != nil || len(kvs) != 1 || kvs[0].Version != 2 {
		t.Errorf("another process reads %+v, %v", kvs, err)
	}
}

func testGetBytes(t *testing.T, h Harness) {
	r := newRig(t, h)
	for _, key := range []string{"a", "b", "c"} {
		r.put(eventlog.Put{Key: key, Version: 1, Value: make([]byte, 100)})
	}
	for _, c := range []struct{ most, want int }{{-1, 1}, {0, 1}, {99, 1}, {100, 2}, {199, 2}, {200, 4}, {299, 4}, {300, 5}, {301, 5}} {
		if got := r.get(c.most, "a", "none", "b", "none", "c"); len(got) != c.want {
			t.Errorf("at most %d bytes: %d keys, want %d", c.most, len(got), c.want)
		}
	}
	if got := r.get(0, "none", "none", "a"); len(got) != 2 {
		t.Errorf("no bytes, and the first keys do not exist: %d keys, want 2", len(got))
	}
	var many []string // as many as a caller may ask for
	for i := range 1000 {
		many = append(many, fmt.Sprintf("%s/%d", strings.Repeat("k", 1900), i))
	}
	if got := r.get(1<<20, append(many, "a")...); len(got) != 1001 || got[1000].Version != 1 {
		t.Errorf("%d keys of many long ones", len(got))
	}
}
