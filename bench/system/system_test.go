package system_test

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/system"
)

// The command that is named makes a system ready, and not half of what it needs.
func TestASystemThatIsNotThereNamesTheCommandThatMakesItSo(t *testing.T) {
	t.Setenv("WEIR_BENCH_HOME", t.TempDir())
	peers := 0
	for _, s := range system.All(false) {
		err := s.Missing()
		switch {
		case s.Fetch == "":
			continue
		case err == nil || !strings.HasSuffix(err.Error(), "`weir-bench fetch "+s.Fetch+"`"):
			t.Errorf("%s: %v", s.Name, err)
		case !strings.ContainsAny(s.About, "0123456789"):
			t.Errorf("%s does not say its version: %s", s.Name, s.About)
		}
		peers++
	}
	if peers < 12 {
		t.Errorf("%d systems of others can be fetched", peers)
	}
}
