package s3

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// A newer weir writes a commit in a format that this one does not know.
func TestAnObjectOfANewerWeirIsToldAsThat(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	if err := putKey(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	_, mark, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	object, _ := seal("weirS3C2", []byte("what this weir cannot read"))
	f.Mu.Lock()
	f.Objects[commitKey(s.st.number+1)] = stored{Body: object, Modified: time.Now()}
	f.Mu.Unlock()
	_, _, moved := s.Changes(t.Context(), mark)
	_, begun := f.open(t.Context(), quick)
	for what, err := range map[string]error{"a poll": moved, "a commit": putKey(t, s, "b"), "a start": begun} {
		if !errors.Is(err, eventlog.ErrUpgraded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := len(f.Keys("void/")); n > 0 {
		t.Errorf("%d commits were taken for void", n)
	}
}
