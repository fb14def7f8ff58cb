// Package recovered turns panics into errors, for goroutines that must not end the process.
package recovered

import (
	"fmt"
	"runtime/debug"
)

// Error is a panic.
type Error struct {
	Value any    // what it panicked with
	Stack []byte // where
}

func (e *Error) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns what it panicked with, if that is an error.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Do calls do. A panic in do is returned as an *Error.
func Do(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Value: v, Stack: debug.Stack()}
		}
	}()
	return do()
}
