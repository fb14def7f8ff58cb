package s3

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// destroyedBy is what docs/s3.md promises: how long a secret stays in the bucket after its key got
// another value.
func destroyedBy(at place) time.Duration { return 2*snapshotOld + 2*at.grace }

// holding returns the objects that hold some bytes.
func (f *fake) holding(text string) (keys []string) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for key, o := range f.Objects {
		if bytes.Contains(o.Body, []byte(text)) {
			keys = append(keys, key)
		}
	}
	return keys
}

// A secret is written with batches that stay. Once its key has another value no object has it soon,
// although nothing is written any more; the batches are read as before.
func TestADestroyedSecretLeavesTheBucket(t *testing.T) {
	const secret = "the key of somebody who is forgotten"
	large := func(n int) (texts []string) {
		for i := range n {
			texts = append(texts, fmt.Sprint(i)+strings.Repeat("x", gatherMax+1))
		}
		return texts
	}
	for name, c := range map[string]struct {
		texts []string
		busy  bool // others publish meanwhile, and it is time for snapshots
	}{
		"beside small batches":                  {texts: []string{"a", "b"}},
		"beside a large batch":                  {texts: large(1)},
		"beside more than a segment holds":      {texts: large(segmentMax/gatherMax + 1)},
		"beside small batches of a busy bucket": {texts: []string{"a", "b"}, busy: true},
		"beside no batches":                     {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s, err := f.open(t.Context(), quick)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				texts := []string{"first"}
				mustPublish(t, s, texts...)
				flush := []eventlog.Entry{{Puts: []eventlog.Put{{Key: "key", Version: 1, Value: []byte(secret), Secret: true}}}}
				for _, text := range c.texts {
					flush = append(flush, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte(text)}}})
				}
				texts = append(texts, c.texts...)
				destroy := []eventlog.Entry{{Puts: []eventlog.Put{{Key: "key", Version: 2, Value: []byte("{}")}}}}
				for _, flush := range [][]eventlog.Entry{flush, destroy} {
					if out, err := s.Commit(t.Context(), flush); err != nil || out[0].Err != nil {
						t.Fatal(out, err)
					}
				}
				if len(f.holding(secret)) == 0 {
					t.Fatal("no object has the secret: the test tests nothing")
				}
				most := 0
				for passed := time.Duration(0); passed < destroyedBy(quick); passed += quick.grace / 4 {
					f.pass(quick.grace / 4)
					if c.busy {
						for range 3 {
							if err := putKey(t, s, fmt.Sprint(passed)); err != nil {
								t.Fatal(err)
							}
						}
						s.mu.Lock()
						s.newest = s.st.number - snapshotEvery
						s.mu.Unlock()
					}
					if err := s.tend(t.Context(), true); err != nil {
						t.Fatal(err)
					}
					most = max(most, len(f.Keys("snapshot/")))
				}
				if keys := f.holding(secret); len(keys) > 0 {
					t.Errorf("after %v %v have the secret", destroyedBy(quick), keys)
				}
				for _, s := range []*Store{s, opened(t, f)} {
					if got := whole(t, s); fmt.Sprint(got) != fmt.Sprint(texts) {
						t.Errorf("%d records are there, want %d", len(got), len(texts))
					}
				}
				if n := s.st.number; !c.busy && n > 10 {
					t.Errorf("upkeep of a bucket in which nothing happens made commits up to %d", n)
				}
				before := s.st.number
				for range 20 {
					f.pass(snapshotOld)
					if err := s.tend(t.Context(), true); err != nil {
						t.Fatal(err)
					}
				}
				if s.st.number > before+2 {
					t.Errorf("upkeep goes on for ever: commit %d became %d", before, s.st.number)
				}
			})
		})
	}
}

// Other values stay beside large batches, as those of each flush of idempotent producers do.
func TestLargeObjectsWithoutSecretsAreNotGathered(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	mustPublish(t, s, "first")
	large := []byte(strings.Repeat("x", gatherMax+1))
	out, err := s.Commit(t.Context(), []eventlog.Entry{{
		Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: large}}, Puts: []eventlog.Put{{Key: "key", Version: 1, Value: []byte("number")}},
	}})
	if err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	for _, s := range []*Store{s, opened(t, f)} {
		if picked := s.pick(2); len(picked) > 0 {
			t.Errorf("%d batches are gathered", len(picked))
		}
	}
}

// Commits of earlier versions do not tell secrets from other values, so all may be secrets.
func TestValuesOfEarlierVersionsMayBeSecrets(t *testing.T) {
	c := commit{number: 1, effects: effects{puts: []put{{key: "plain", value: []byte("a")}, {key: "secret", secret: true, value: []byte("b")}, {key: "deleted", deleted: true}}}}
	object, _ := c.encode()
	got, _, err := decodeCommit(object)
	if err != nil || fmt.Sprint(got.puts) != fmt.Sprint(c.puts) {
		t.Fatalf("%v became %v, %v", c.puts, got.puts, err)
	}
	head := []byte{0} // as an earlier version wrote that a key is not deleted
	if kind := (&reader{b: head}).uint(); kind != putSecret {
		t.Errorf("kind %d", kind)
	}
}
