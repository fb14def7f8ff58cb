package load_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/internal/verify/load"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/keys"
)

// betweenHarms is how many events are acknowledged before something is done, after it, and between
// two such things.
const betweenHarms = 300

// enough is the patience of runs that lose nothing: they end when everything came.
const enough = time.Hour

// while writes and reads through the library on a store, and does one thing after the other to it.
func while(t *testing.T, url string, patience time.Duration, harms ...func()) load.Report {
	t.Helper()
	logged := &load.Logged{}
	logger := slog.New(slog.NewTextHandler(logged, nil))
	library, err := load.OpenLibrary(t.Context(), func(ctx context.Context) (eventlog.Store, error) {
		return store.OpenWith(ctx, url, store.Options{Logger: logger, Rules: keys.Rules()})
	}, "load-7", logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { library.Close() })
	return harmed(t, library.Protocols(), load.Options{Logged: logged, Patience: patience}, harms...)
}

// harmed is a run that ends when all harm was done and writes succeed after it.
func harmed(t *testing.T, protocols []load.Protocol, o load.Options, harms ...func()) load.Report {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	written, over, done := make(chan int64), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		next := int64(betweenHarms)
		for {
			select {
			case <-over:
				return
			case n := <-written:
				if n < next {
					continue
				}
				if len(harms) == 0 {
					stop()
					return
				}
				harms[0]()
				harms, next = harms[1:], n+betweenHarms
			}
		}
	}()
	o.Run, o.For, o.Rate, o.Timeout = 7, 24*time.Hour, 600, 20*time.Second
	o.Say = func(line string) { t.Log(line) }
	o.Progress = func(p load.Progress) {
		select {
		case written <- p.Written:
		default: // harm is being done, or all is
		}
	}
	report, remains, err := load.Run(ctx, ledgerFile(t), protocols, o)
	close(over)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range remains {
		t.Error(r)
	}
	for _, p := range report.Protocols {
		t.Logf("%s: %d acknowledged, %d unknown, %d refused, %d delivered; stalls %.1f s and %.1f s", p.Protocol, p.Acked, p.Unknown, p.Failed, p.Delivered, p.WriteStall, p.ReadStall)
	}
	return report
}

func clean(t *testing.T, report load.Report) {
	t.Helper()
	if !report.Clean() || report.Unjudged != "" {
		t.Errorf("%s %s", report.Violations(), report.Unjudged)
	}
}

func TestALoadIsCleanWhilePostgreSQLIsKilledAndRestarted(t *testing.T) {
	server := pgtest.Start(t)
	kill := func() { server.KillImmediate(); server.Resume() }
	clean(t, while(t, server.URL(), enough, kill, server.Restart, kill))
}

func TestALoadIsCleanWhileMariaDBIsKilledAndRestarted(t *testing.T) {
	server := mytest.Start(t)
	kill := func() { server.Kill(); server.Resume() }
	clean(t, while(t, server.URL(), enough, kill, func() { server.Stop(); server.Resume() }, kill))
}

func TestALoadIsCleanWhileTheS3ServerIsKilledAndRestarted(t *testing.T) {
	server := s3test.Start(t)
	kill := func() { server.Kill(); server.Resume() }
	clean(t, while(t, server.URL(), enough, kill, kill))
}

// The standby has each commit before its writer hears of it, so nothing is lost when it takes over.
func TestALoadIsCleanWhenASynchronousStandbyTakesOver(t *testing.T) {
	primary := pgtest.Start(t)
	url := primary.URL()
	standby := primary.Standby()
	pgtest.Exec(t, primary.Admin(), `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	pgtest.Exec(t, primary.Admin(), `SELECT pg_reload_conf()`)
	alias := pgtest.NewAlias(t, url)
	clean(t, while(t, alias.At(url), enough, func() {
		primary.KillImmediate()
		pgtest.Exec(t, standby.At(url), `SELECT pg_promote()`)
		alias.Point(standby.At(url))
	}))
}

// A storage that forgets the end of what it acknowledged, as one does whose disk lies, is played by
// an older copy of its data.
func TestALoadTellsWhatAStorageForgot(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T) (url string, backup func() (func() error, error)){
		"PostgreSQL": func(t *testing.T) (string, func() (func() error, error)) {
			s := pgtest.Start(t)
			return s.URL(), s.Backup
		},
		"MariaDB": func(t *testing.T) (string, func() (func() error, error)) {
			s := mytest.Start(t)
			return s.URL(), s.Backup
		},
		"S3": func(t *testing.T) (string, func() (func() error, error)) {
			s := s3test.Start(t)
			return s.URL(), s.Backup
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, backup := begin(t)
			var restore func() error
			report := while(t, url, 5*time.Second, func() {
				var err error
				if restore, err = backup(); err != nil {
					t.Error(err)
				}
			}, func() {
				if err := restore(); err != nil {
					t.Error(err)
				}
			})
			lost := int64(0)
			for _, p := range report.Protocols { // one may have written nothing after the copy
				t.Logf("%s: %s, such as: %s", p.Protocol, p.Verdict, p.First)
				lost += int64(p.Lost)
			}
			if report.Clean() || lost == 0 {
				t.Errorf("nothing is said to be lost: %+v", report)
			}
		})
	}
}

// A proxy that acknowledges a write and drops it is found by who reads the store anew, although the
// process that wrote has the events in memory.
func TestALoadTellsWhatAProxyAcknowledgedAndDropped(t *testing.T) {
	proxy := s3test.NewProxy(t, s3test.Start(t).URL())
	dropped := false
	report := while(t, proxy.URL(), 5*time.Second, func() {
		proxy.Faults(func(r s3test.Request) s3test.Fault {
			if dropped || !strings.Contains(r.Key, "commit/") || r.Method != http.MethodPut {
				return s3test.Fault{}
			}
			dropped = true
			return s3test.Fault{Lie: true}
		})
	})
	proxy.Faults(nil)
	if !dropped || report.Clean() {
		t.Errorf("dropped %v, and nothing is said to be lost: %+v", dropped, report)
	}
}
