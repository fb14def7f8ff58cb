package load_test

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/verify/load"
)

// ledgerFile is an empty file for a history.
func ledgerFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "history"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// short ends a run when some events were acknowledged.
func short(t *testing.T, o load.Options) (context.Context, load.Options) {
	ctx, stop := context.WithCancel(t.Context())
	o.Run, o.For, o.Rate, o.Patience = 7, time.Hour, 2000, time.Minute
	o.Say = func(line string) { t.Log(line) }
	o.Progress = func(p load.Progress) {
		t.Log(p)
		if p.Written > 500 {
			stop()
		}
	}
	return ctx, o
}

func TestALoadThroughTheLibraryIsCleanAndLeavesNothing(t *testing.T) {
	everystore.Run(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		ctx, o := short(t, load.Options{})
		library, err := load.OpenLibrary(ctx, func(context.Context) (eventlog.Store, error) { return reopen(t), nil }, "load-7", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { library.Close() })
		file := ledgerFile(t)
		report, remains, err := load.Run(ctx, file, library.Protocols(), o)
		if err != nil || len(remains) > 0 {
			t.Fatal(err, remains)
		}
		if !report.Clean() || report.Unjudged != "" {
			t.Errorf("the report: %+v", report)
		}
		for _, p := range report.Protocols {
			if p.Acked < 20 || p.Delivered < p.Acked {
				t.Errorf("%s wrote %d and read %d", p.Protocol, p.Acked, p.Delivered)
			}
		}
		if n := map[string]int{"postgres": 6, "mysql": 4}[path.Base(t.Name())]; len(report.Protocols) != max(n, 3) {
			t.Errorf("there are %d protocols", len(report.Protocols))
		}
		names := everything(t, library)
		for _, name := range names {
			if strings.HasPrefix(name, "load-7") {
				t.Errorf("the run left %s", name)
			}
		}
	})
}

func everything(t *testing.T, library *load.Library) []string {
	t.Helper()
	names, err := library.Names(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return names
}
