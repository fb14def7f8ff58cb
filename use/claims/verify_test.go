package claims

import (
	"strings"
	"testing"
)

func TestAFindingSaysWhatContradictsItself(t *testing.T) {
	for want, p := range map[string]Part{
		"":                             {Partition: 4, Floor: 3, Next: 5, Runs: []Run{{From: 3, N: 2}}},
		"is -1, which is below 0":      {Partition: 4, Floor: -1, Next: 5},
		"but the partition ends at 10": {Partition: 4, Floor: 3, Next: 11},
	} {
		if got := p.Verify(10); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}
