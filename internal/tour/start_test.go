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
	stage{
		page:  "../../docs/start-queue.md",
		env:   []string{"DATABASE=" + database, "PYTHONPATH=" + libs[0], "npm_config_update_notifier=false"},
		named: []string{"@localhost/shop", "@" + u.Host + u.RequestURI()},
		links: map[string]string{"node_modules": filepath.Join(libs[1], "node_modules")},
		saves: true,
	}.replay(t)
}

func TestTheStartWithABucketShowsWhatHappens(t *testing.T) {
	stage{
		page:  "../../docs/start-s3.md",
		env:   []string{"WEIR_STORE=" + s3test.URL(t) + "&alone=true", "WEIR_KAFKA=off"},
		saves: true,
	}.replay(t)
}
