package tour

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/s3test"
)

// gateway puts the S3 server of the page into the shell's PATH.
func (s *shell) gateway() {
	s.t.Helper()
	path, err := s3test.Program()
	if err != nil {
		s.t.Fatal(err)
	}
	s.must(`PATH="$PATH:` + filepath.Dir(path) + `"`)
}

func TestABucketIsTriedAsThePageSays(t *testing.T) {
	addresses, err := proctest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	const gateway, example = "127.0.0.1:7070", "go run ./examples/handler"
	sh := stage{
		page: s3Page, section: "## Try it on this machine", examples: []string{"handler"}, env: []string{"TMPDIR=" + t.TempDir()},
		named:   []string{gateway, addresses[0]},
		samples: []string{"} 2", "} 49", "} 3", "} 11"},
		before: map[string]func(*shell){
			"mkdir": (*shell).gateway,
			"weir serve": func(sh *shell) {
				sh.must("curl -s --retry 60 --retry-delay 1 --retry-connrefused http://" + addresses[0])
			},
		},
	}.replay(t)
	command := strings.NewReplacer(gateway, addresses[0], example, "handler").Replace(inline(t, s3Page, example)[0])
	if got := sh.must(command); strings.Count(got, "one")+strings.Count(got, "two")+strings.Count(got, "three") != 3 {
		t.Errorf("$ %s\n%s", command, got)
	}
}
