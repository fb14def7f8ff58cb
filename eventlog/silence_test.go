package eventlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
)

func TestSilenceGrowsWhileTheStoresClockIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s eventlog.Silence
		of := func(version eventlog.Version, age time.Duration) time.Duration {
			return s.Of(eventlog.KeyValue{Key: "k", Version: version, Age: age}, time.Now())
		}
		want := func(when string, got, want time.Duration) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		want("found first", of(1, 0), 0)
		time.Sleep(3 * time.Second)
		asked := time.Now()
		want("unchanged", of(1, 0), 3*time.Second)
		want("older by the store's clock", of(1, time.Minute), time.Minute)
		want("put again", of(2, time.Second), time.Second)
		s.Forget(asked)
		time.Sleep(2 * time.Second)
		want("unchanged, and not forgotten", of(2, 0), 2*time.Second)
		s.Forget(time.Now().Add(1))
		want("forgotten", of(2, 0), 0)
	})
}
