package cli

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Operators set the patience of systemd, Docker and Kubernetes by this number.
func TestTheTimeThatAStopTakesIsTheOneInTheDocs(t *testing.T) {
	if leaveBrokers+drainUses+drainLog+lastSpans >= stopMost {
		t.Errorf("leaving the brokers takes %v, doors and uses %v, the log %v and the spans %v: nothing of %v is left for closing the store", leaveBrokers, drainUses, drainLog, lastSpans, stopMost)
	}
	if drainUses <= drainDoors {
		t.Errorf("requests may take %v, and the log stops after %v: members of groups cannot leave in between", drainDoors, drainUses)
	}
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d s after the first signal at the latest", stopMost/time.Second)
	if !strings.Contains(string(doc), want) {
		t.Errorf("docs/operations.md does not say %q", want)
	}
}

func TestAStopThatHangsIsCutOffAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, code := time.Now(), -1
		cutOff(slog.New(slog.DiscardHandler), make(chan struct{}), func(c int) { code = c })
		if took := time.Since(began); took != stopMost || code != exitUnreachable {
			t.Errorf("left with %d after %v, want %d after %v", code, took, exitUnreachable, stopMost)
		}
		stopped := make(chan struct{})
		close(stopped)
		cutOff(slog.New(slog.DiscardHandler), stopped, func(int) { t.Error("a process that stopped in time was cut off") })
	})
}
