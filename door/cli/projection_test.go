package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lib "github.com/weir-log/weir"
)

// A program works on a projection, on the same store as the server.
func TestAProjectionIsLookedAfterFromTheCommandLine(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	s := queueServer(t, "--store", store)
	weir(t, "", "projection", "list").want(t, exitOK, "PROJECTION")
	weir(t, "", "projection", "describe", "totals").want(t, exitFailed, "no such projection", "weir projection list")
	weir(t, "", "stream", "category", "create", "order").want(t, exitOK)
	weir(t, "a\nb\nc\n", "stream", "append", "order", "4711", "--type", "Placed").want(t, exitOK)

	log, err := lib.Open(t.Context(), store, lib.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close(context.Background())
	handled := make(chan lib.ProjectedEvent)
	project := func() *lib.Projector {
		t.Helper()
		p, err := log.Project(t.Context(), lib.Projection{Name: "totals", Categories: []string{"order"}, Handler: func(ctx context.Context, e lib.ProjectedEvent) error {
			select {
			case handled <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := project()
	for range 3 {
		<-handled
	}
	weir(t, "", "projection", "list").want(t, exitOK, "totals", "active")
	weir(t, "", "projection", "describe", "totals").want(t, exitOK, "projection totals: active", "now ", "order", "projection.totals.1.")
	weir(t, "", "projection", "describe", "totals", "--output", "json").want(t, exitOK, `"name": "totals"`, `"number": 1`, `"behind_ms"`)
	weir(t, "", "projection", "list", "--output", "json").want(t, exitOK, `"name": "totals"`)
	weir(t, "", "projection", "delete", "totals", "--yes").want(t, exitFailed, "stop the programs")

	weir(t, "", "projection", "pause", "totals").want(t, exitOK, "paused projection totals")
	weir(t, "", "projection", "describe", "totals").want(t, exitOK, "projection totals: paused")
	weir(t, "", "projection", "rebuild", "totals").want(t, exitOK, "projection totals will be rebuilt")
	if r := weir(t, "", "projection", "describe", "totals"); !strings.Contains(r.out, "next ") || !strings.Contains(r.out, "projection.totals.2.") {
		t.Errorf("while it is rebuilt: %s", r.out)
	}
	_, page := s.get(t, "/metrics")
	for _, text := range []string{`weir_projection_lag_records{projection="totals",run="next"} 3`, `weir_projection_lag_records{projection="totals",run="now"} `, `weir_projection_behind_seconds{projection="totals",run="next"} `} {
		if !strings.Contains(page, text) {
			t.Errorf("/metrics lacks %s", text)
		}
	}
	if strings.Contains(page, `weir_projection_behind_seconds{projection="totals",run="next"} 0`+"\n") {
		t.Error("/metrics says that the run that is paused is not behind")
	}
	weir(t, "", "projection", "resume", "totals").want(t, exitOK, "resumed projection totals")
	for range 3 {
		if e := <-handled; e.Run != 2 {
			t.Errorf("run %d handles %+v", e.Run, e)
		}
	}
	go func() {
		for {
			select {
			case <-handled:
			case <-t.Context().Done():
				return
			}
		}
	}()
	rebuilt := func() (run int64) {
		t.Helper()
		r := weir(t, "", "projection", "rebuild", "totals", "--wait")
		const said = "projection totals is rebuilt: readers use run "
		r.want(t, exitOK, said)
		if _, err := fmt.Sscan(r.out[strings.Index(r.out, said)+len(said):], &run); err != nil {
			t.Fatal(err)
		}
		return run
	}
	before := rebuilt() // by run 2, if it still is in the making
	if after := rebuilt(); after != before+1 {
		t.Errorf("rebuild --wait ends while readers use run %d, want %d", after, before+1)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	weir(t, "", "projection", "delete", "totals").want(t, exitUsage, "add --yes")
	weir(t, "", "projection", "delete", "totals", "--yes").want(t, exitOK, "deleted projection totals")
	weir(t, "", "projection", "list").want(t, exitOK, "PROJECTION")
	weir(t, "", "projection", "pause", "totals").want(t, exitFailed, "no such projection")
}

func TestWhatARebuildStillTakes(t *testing.T) {
	next := func(lag int64, paused bool) projectionPicture {
		return projectionPicture{Paused: paused, Next: &runPicture{Lag: lag}}
	}
	for _, c := range []struct {
		p    projectionPicture
		want string
	}{
		{next(100, false), ""}, {next(120, false), ""}, {next(25, false), ", about 10s"}, {next(75, false), ", about 1m30s"}, {next(50, true), ", paused"},
	} {
		if got := remaining(c.p, 100, 30*time.Second); got != c.want {
			t.Errorf("%d of 100 events are left after 30s: %q, want %q", c.p.Next.Lag, got, c.want)
		}
	}
}
