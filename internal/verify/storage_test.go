package verify

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// register is a cell that may lie.
type register struct {
	mu       sync.Mutex
	versions []string
	puts     int
	lie      func(r *register, version int64, value string) (won, lies bool)
	stale    bool // each third read is that of an earlier version
	gets     int
}

func (r *register) Put(_ context.Context, version int64, value string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.puts++
	if r.lie != nil {
		if won, lies := r.lie(r, version, value); lies {
			return won, nil
		}
	}
	if version != int64(len(r.versions))+1 {
		return false, nil
	}
	r.versions = append(r.versions, value)
	return true, nil
}

func (r *register) Get(context.Context) (int64, string, error) {
	defer runtime.Gosched() // others see the same version, and race to make the next one
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.versions)
	if r.gets++; r.stale && r.gets%3 == 0 && n > 1 {
		n--
	}
	if n == 0 {
		return 0, "", nil
	}
	return int64(n), r.versions[n-1], nil
}

func TestARaceFindsWhatNoStorageMayDo(t *testing.T) {
	for name, c := range map[string]struct {
		cell *register
		want string
	}{
		"honest": {&register{}, ""},
		"two win": {&register{lie: func(r *register, version int64, value string) (bool, bool) {
			return true, version <= int64(len(r.versions))
		}}, "both succeeded"},
		"the second overwrites": {&register{lie: func(r *register, version int64, value string) (bool, bool) {
			late := version == int64(len(r.versions))
			if late {
				r.versions[version-1] = value
			}
			return false, late
		}}, "but "},
		"it acknowledges and does not write": {&register{lie: func(r *register, version int64, value string) (bool, bool) {
			return true, r.puts%5 == 0 && version == int64(len(r.versions))+1
		}}, "succeeded"},
		"old reads": {&register{stale: true}, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Race(t.Context(), &Scratch{Cells: []Cell{c.cell, c.cell, c.cell}}, 40)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(r.Wrong, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("of %+v: %s, want %q", r, got, c.want)
			}
			if len(r.Wrong) > wrongMost {
				t.Errorf("%d lines", len(r.Wrong))
			}
		})
	}
}
