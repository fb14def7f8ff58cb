// Package recovered turns panics into errors, for goroutines that must not end the process.
package recovered

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// stackMax bounds the bytes of Error.Stack: what is repeated, or panics in deep recursion, must not
// fill a log.
const stackMax = 4 << 10

// Error is a panic. Its text has one line, because it may be logged for every event that a function
// panics for; Stack is for the first.
type Error struct {
	Value any    // what it panicked with
	At    string // function, file and line
	Stack []byte // at most 4 KiB: the calls nearest to the panic
}

func (e *Error) Error() string { return fmt.Sprintf("panic: %v, at %s", e.Value, e.At) }

// Unwrap returns what it panicked with, if that is an error.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Do calls do. A panic in do is returned as an *Error.
func Do(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			err = &Error{Value: v, At: panickedAt(), Stack: stack[:min(len(stack), stackMax)]}
		}
	}()
	return do()
}

// Logged returns what to add to the first log line about an error: the stack, if the error is a
// panic.
func Logged(err error) []any {
	var panicked *Error
	if !errors.As(err, &panicked) {
		return nil
	}
	return []any{"stack", string(panicked.Stack)}
}

// panickedAt returns the function that panicked, for a deferred function that recovers.
func panickedAt() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for {
		frame, more := frames.Next()
		inRuntime := strings.HasPrefix(frame.Function, "runtime.")
		switch {
		case panicking && !inRuntime:
			return fmt.Sprintf("%s (%s:%d)", frame.Function, filepath.Base(frame.File), frame.Line)
		case inRuntime:
			panicking = true // runtime.gopanic, and what the runtime does for a nil pointer or an index
		}
		if !more {
			return "an unknown place"
		}
	}
}
