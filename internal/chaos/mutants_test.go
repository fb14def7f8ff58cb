package main

import (
	"go/format"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/judge"
)

// A mutant whose text is not in the code any more would be found out only when somebody runs it.
func TestMutantsFitTheCode(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			changed, err := m.applied("../..")
			if err != nil {
				t.Fatal(err)
			}
			for path, text := range changed {
				if _, err := format.Source(text); strings.HasSuffix(path, ".go") && err != nil {
					t.Errorf("%s does not parse with the fault: %v", path, err)
				}
			}
			if m.test != "" && testIn[m.store] == "" {
				t.Errorf("nothing says which package has %s", m.test)
			}
			for _, id := range m.finds {
				if judge.Invariants[id] == "" {
					t.Errorf("there is no invariant %s", id)
				}
			}
		})
	}
}
