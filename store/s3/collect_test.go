package s3

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A busy bucket gets snapshots far more often than once in grace. What is no longer needed is
// deleted all the same.
func TestABusyBucketIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		const every = 2 * time.Minute
		for round := range 3 * int(quick.grace/every) {
			if err := putKey(t, s, fmt.Sprint("key ", round)); err != nil {
				t.Fatal(err)
			}
			f.pass(every)
			if err := s.snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.collect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, prefix := range []string{"snapshot/", "part/", "commit/"} {
			if n, most := len(f.Keys(prefix)), int(quick.grace/every)+3; n > most {
				t.Errorf("%d objects %s are left, want at most the %d of grace", n, prefix, most)
			}
		}
	})
}

// However many snapshots there are, the newest is found.
func TestTheNewestOfManySnapshotsIsFound(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	mustPublish(t, s, "a")
	for n := range pageSize + 5 {
		f.Objects[fmt.Sprintf("snapshot/%020d-x", n)] = stored{Body: nil, Modified: time.Now()}
	}
	all, _, err := s.snapshots(t.Context())
	if err != nil || len(all) != pageSize+5 || all[len(all)-1].number != pageSize+4 {
		t.Errorf("%d snapshots, %v", len(all), err)
	}
}
