package closing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

func TestAContextOutlivesItsCallerByTheTimeGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		outlives, cancel := Outlive(ctx, time.Second)
		defer cancel()
		if outlives.Value(key{}) != "value" {
			t.Error("the caller's values are not in it")
		}
		time.Sleep(time.Hour) // in fake time
		if outlives.Err() != nil {
			t.Error("it ended before its caller")
		}
		ended := time.Now()
		end()
		<-outlives.Done()
		if took := time.Since(ended); took != time.Second {
			t.Errorf("it ended %v after its caller, want a second", took)
		}
	})
}

func TestACancelledContextDoesNotOutliveItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outlives, cancel := Outlive(t.Context(), time.Hour)
		cancel()
		if outlives.Err() == nil {
			t.Error("it goes on after cancel")
		}
	})
}

func TestTheRestOfTheTimeIsForWhatFollowsTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		calls, rest, done := Split(ctx)
		defer done()
		<-calls.Done()
		if at := time.Since(began); at != 9*time.Second {
			t.Errorf("the handlers' time ended after %v of 10 s, want 9 s", at)
		}
		<-rest.Done()
		if at := time.Since(began); at != 11*time.Second {
			t.Errorf("the time for what follows ended after %v, want 11 s: Reserve after the caller's", at)
		}
	})
}
