package httpapi

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// An error that says what happened counts, not that its cause is the end of a context; and whatever
// else an error says, it may have happened if the store did not answer.
func TestWhatAnErrorSaysHappenedCounts(t *testing.T) {
	ended := []error{context.DeadlineExceeded, context.Canceled}
	for _, known := range knownErrors {
		for _, cause := range ended {
			if errors.Is(known.err, ended[0]) || errors.Is(known.err, ended[1]) {
				continue
			}
			if got := problemOf(fmt.Errorf("try: %w (%w)", known.err, cause)); got.Type != problemPrefix+known.kind.name {
				t.Errorf("%v because of %v is told as %s, want %s", known.err, cause, got.Type, known.kind.name)
			}
		}
	}
	for _, err := range []error{
		&eventlog.InvalidError{What: "partition"}, &eventlog.InvalidError{What: "name"}, &eventlog.RangeError{},
		&queue.StaleReceiptError{}, &stream.ConflictError{}, &eventlog.DamagedError{},
	} {
		if !toldUnknown(fmt.Errorf("try: %w (%w)", eventlog.ErrUnsure, err)) {
			t.Errorf("an unknown outcome with %T is told as %s", err, problemOf(fmt.Errorf("%w (%w)", eventlog.ErrUnsure, err)).Type)
		}
	}
}
