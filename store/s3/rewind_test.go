package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// A bucket is put back to an earlier copy under two processes that look for that only once an hour.
// Nothing that they acknowledge afterwards is lost.
func TestARewindIsNoticedByTheNextCommit(t *testing.T) {
	f := newFake()
	seldom := quick
	seldom.verify = time.Hour
	stores := make([]*Store, 3)
	for i := range stores {
		s, err := f.open(t.Context(), seldom)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		stores[i] = s
	}
	put := func(s *Store, key string) error {
		out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(key)}}}})
		if err == nil {
			err = out[0].Err
		}
		return err
	}
	told := func(s *Store) {
		if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		if err := put(stores[0], fmt.Sprint("before ", i)); err != nil {
			t.Fatal(err)
		}
	}
	f.Mu.Lock()
	copied := maps.Clone(f.Objects)
	f.Mu.Unlock()
	for i := range 3 {
		if err := put(stores[0], fmt.Sprint("lost ", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range stores {
		told(s)
	}
	f.Mu.Lock()
	f.Objects = maps.Clone(copied)
	f.Mu.Unlock()

	acknowledged, refused := map[string]bool{}, 0
	for i := range 40 {
		key := fmt.Sprint("after ", i)
		s := stores[i%2]
		err := put(s, key)
		switch {
		case errors.Is(err, eventlog.ErrRewound), errors.Is(err, eventlog.ErrUnsure):
			refused++
			told(s)
		case err != nil:
			t.Fatalf("%s: %v", key, err)
		default:
			acknowledged[key] = true
		}
	}
	if refused == 0 || len(acknowledged) < 30 {
		t.Errorf("%d commits were refused, and %d acknowledged", refused, len(acknowledged))
	}
	anew, err := f.open(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = anew.Close() })
	told(stores[2])
	for _, s := range append(stores, anew) {
		found, err := s.List(t.Context(), "", "", 1000)
		for n := 0; n < 3 && (errors.Is(err, eventlog.ErrRewound) || errors.Is(err, eventlog.ErrUnavailable)); n++ {
			told(s)
			found, err = s.List(t.Context(), "", "", 1000)
		}
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]bool{}
		for _, kv := range found {
			has[kv.Key] = true
		}
		for key := range acknowledged {
			if !has[key] {
				t.Errorf("%q was acknowledged after the copy was put back, and is lost", key)
			}
		}
		if has["lost 0"] || !has["before 4"] {
			t.Errorf("keys are %v", has)
		}
	}
}

// Somebody deletes objects while weir runs, and then undoes that: a commit that was made meanwhile
// follows again what it was made on, so its caller must not have heard that nothing happened.
func TestACommitOfTheTimeWhenObjectsWereDeletedIsNotDenied(t *testing.T) {
	seldom := quick
	seldom.verify = time.Hour
	for _, only := range []string{"commit/", ""} { // the newest commits; all there is
		f := newFake()
		s, err := f.open(t.Context(), seldom)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := putKey(t, s, "before"); err != nil {
			t.Fatal(err)
		}
		f.Mu.Lock()
		deleted := maps.Clone(f.Objects)
		maps.DeleteFunc(f.Objects, func(key string, _ stored) bool { return strings.HasPrefix(key, only) })
		f.Mu.Unlock()
		refused := putKey(t, s, "meanwhile")
		f.Mu.Lock()
		maps.Copy(f.Objects, deleted)
		f.Mu.Unlock()

		anew, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = anew.Close() })
		found, err := anew.List(t.Context(), "", "", 10)
		if err != nil || len(found) != 2 {
			t.Fatalf("with the objects back: %+v, %v; want both keys, or this test shows nothing", found, err)
		}
		if !errors.Is(refused, eventlog.ErrUnsure) {
			t.Errorf("objects below %q were deleted, and a commit was answered %v; want ErrUnsure, because it counts now", only, refused)
		}
	}
}

// A bucket is put back while a process reads several commits at once: one of them is from before,
// the next was made on top of it afterwards.
func TestARewindDuringARoundOfReadsIsNoticed(t *testing.T) {
	f := newFake()
	writer, err := f.open(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	between := &rewinding{bucket: writer.bucket}
	reader, err := open(t.Context(), quick, between, writer.clock, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	put := func(s *Store, key string) {
		t.Helper()
		out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(key)}}}})
		if err != nil || out[0].Err != nil {
			t.Fatal(key, out, err)
		}
	}
	put(writer, "kept")
	f.Mu.Lock()
	copied := maps.Clone(f.Objects)
	f.Mu.Unlock()
	put(writer, "lost")
	put(writer, "void")
	f.Mu.Lock()
	copied[commitKey(3)] = f.Objects[commitKey(3)]
	f.Mu.Unlock()
	rewound := make(chan struct{})
	between.before = func(key string) {
		if key == commitKey(3) {
			<-rewound
		}
	}
	between.after = func(key string) {
		if key == commitKey(2) {
			f.Mu.Lock()
			f.Objects = copied
			f.Mu.Unlock()
			between.after = func(string) {}
			close(rewound)
		}
	}
	has := func(s *Store) (keys string) {
		t.Helper()
		for range 3 {
			if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
				t.Fatal(err)
			}
			if found, err := s.List(t.Context(), "", "", 100); err == nil {
				for _, kv := range found {
					keys += kv.Key + " "
				}
				return keys
			}
		}
		t.Fatal("the keys cannot be listed")
		return ""
	}
	if keys := has(reader); keys != "kept " {
		t.Errorf("the reader has %s, and the bucket only kept", keys)
	}
	put(reader, "new")
	anew, err := f.open(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = anew.Close() })
	if keys := has(anew); keys != "kept new " {
		t.Errorf("the bucket has %s, want kept and new", keys)
	}
}

// rewinding is a bucket that calls before and after each get.
type rewinding struct {
	bucket
	before, after func(key string)
}

func (r *rewinding) get(ctx context.Context, key string, from, size int64) ([]byte, answer, error) {
	if r.before != nil {
		r.before(key)
		defer func() { r.after(key) }()
	}
	return r.bucket.get(ctx, key, from, size)
}
