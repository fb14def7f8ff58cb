package tour

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
)

// The pages for who begins are typed in from their first command to their last.

// The page makes roles, which belong to a whole server: here it has one of its own.
func TestTheStartWithAQueueShowsWhatHappens(t *testing.T) {
	var libs []string
	for _, l := range languages(t)[:2] { // Python and TypeScript
		libs = append(libs, l.have(t))
	}
	database := pgtest.Start(t).URL()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	sh := stage{
		page:    "../../docs/start-queue.md",
		env:     []string{"DATABASE=" + database, "PYTHONPATH=" + libs[0]},
		named:   []string{"@localhost/shop", "@" + u.Host + u.RequestURI()},
		links:   map[string]string{"node_modules": filepath.Join(libs[1], "node_modules")},
		saves:   true,
		samples: []string{"ID   REASON", "9-0     2-0", "2026-05-04T08:00:12Z"}, // of the dead letter
	}.replay(t)
	// The worker in TypeScript, to which the page leads, takes over from the one in Python.
	worker, err := filepath.Abs("../../examples/worker/worker.mts")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, prints string }{
		{"kill $worker; wait $worker", ""},
		{"node_modules/.bin/tsx " + worker + " > other.log & worker=$!", ""},
		{"python3 enqueue.py 43", ""},
		{"grep -m 1 '^ack' <(tail -n +1 -f other.log)", "ack of attempt 1 207"},
		{"cat outbox/43", "thank you for purchase 43"},
	} {
		if out, code := sh.run(c.command); code != 0 || !matches(out, c.prints) {
			t.Fatalf("$ %s\nprinted %q, with exit code %d, and not %q", c.command, out, code, c.prints)
		}
	}
}

func TestTheStartWithABucketShowsWhatHappens(t *testing.T) {
	const page = "../../docs/start-s3.md"
	store := s3test.URL(t) + "&alone=true"
	bucket, other := blocks(t, page, "## The bucket", "sh"), blocks(t, page, "## From other machines", "sh")[0]
	sh := stage{
		page: page, saves: true, types: true,
		named: []string{"/etc/default/weir", "./settings", other, "", "systemctl", "true", "aws s3", "true"}, // a test of its own has the backup
		before: map[string]func(*shell){bucket[0]: func(sh *shell) {
			settings := strings.Replace(blocks(t, page, "## The bucket", "ini")[0], "s3://my-bucket/weir?endpoint=https://fsn1.your-objectstorage.com&region=fsn1&alone=true", store, 1)
			if err := os.WriteFile(filepath.Join(sh.dir, "settings"), []byte(strings.ReplaceAll(settings, "AWS_", "UNUSED_")), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	}.replay(t)
	sh.must(strings.NewReplacer("https://events.example.org", "$WEIR_SERVER", "…", "$WEIR_API_KEY").Replace(other))
}
