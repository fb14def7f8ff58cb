package tour

import (
	"net/url"
	"path/filepath"
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
	stage{
		page:  "../../docs/start-s3.md",
		env:   []string{"WEIR_STORE=" + s3test.URL(t) + "&alone=true", "WEIR_KAFKA=off"},
		saves: true,
	}.replay(t)
}
