package postgres

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A fault in what runs in the background is told, and it begins anew after a pause; the process
// goes on.
func TestBackgroundWorkThatPanicsBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		s := &Store{opts: Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}}
		ctx, stop := context.WithCancel(t.Context())
		began, runs := time.Now(), 0
		s.persist(ctx, func() error {
			if runs++; runs == 3 {
				stop()
				return nil
			}
			panic("a fault")
		})
		if pause := time.Since(began); runs != 3 || pause < 100*time.Millisecond || strings.Count(said.String(), "a fault") < 2 {
			t.Errorf("%d runs in %v, and said: %s", runs, pause, said.String())
		}
	})
}
