package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

// Exit codes. Scripts depend on them: docs/operations.md lists them for people.
const (
	exitOK          = 0
	exitFailed      = 1   // what was asked could not be done
	exitUsage       = 2   // the command line is wrong; nothing was done
	exitConfig      = 3   // a setting cannot work: an address in use, a host that does not resolve
	exitUnreachable = 4   // the store, the broker or the server does not answer; or its answer was lost
	exitRefused     = 5   // the store answers, but refuses us
	exitUnsafe      = 6   // it would work, and could lose or expose data
	exitUnfinished  = 2   // of weir verify: the store could not be examined to the end, perhaps because the command line is wrong
	exitPipe        = 141 // the reader of our output is gone
)

// exitMeanings are the exit codes for people.
var exitMeanings = []struct {
	code  int
	means string
}{
	{exitOK, "It is done."},
	{exitFailed, "What was asked could not be done."},
	{exitUsage, "The command line is wrong; nothing was done. Of weir verify: the store could not be examined to the end."},
	{exitConfig, "A setting cannot work: an address in use, a host that does not resolve."},
	{exitUnreachable, "The store, the broker or the server does not answer, or its answer was lost."},
	{exitRefused, "The store answers, and refuses."},
	{exitUnsafe, "It would work, and could lose or expose data."},
	{exitPipe, "The reader of the output is gone."},
}

// problem is an error with an exit code and a hint.
type problem struct {
	code int
	err  error
	hint string // what to do; empty if there is nothing to say
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

func usage(err error, hint string) error       { return &problem{exitUsage, err, hint} }
func failed(err error, hint string) error      { return &problem{exitFailed, err, hint} }
func config(err error, hint string) error      { return &problem{exitConfig, err, hint} }
func unreachable(err error, hint string) error { return &problem{exitUnreachable, err, hint} }
func refused(err error, hint string) error     { return &problem{exitRefused, err, hint} }
func unsafe(err error, hint string) error      { return &problem{exitUnsafe, err, hint} }

// stopped is the cause of a context that a signal ended.
type stopped struct{ signal syscall.Signal }

func (s stopped) Error() string { return "stopped by " + s.signal.String() }

// report prints an error once, for a person, and returns the exit code.
func report(ctx context.Context, w io.Writer, err error) int {
	var interrupted stopped
	if err == nil {
		return exitOK
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitPipe // nobody reads; the shell wants no words about it
	}
	var p *problem
	code := exitFailed
	if errors.As(err, &p) {
		code = p.code
	}
	if errors.As(context.Cause(ctx), &interrupted) {
		code = 128 + int(interrupted.signal)
	}
	if !errors.Is(err, context.Canceled) && !errors.As(err, &stopped{}) {
		lines := strings.Split(err.Error(), "\n") // joined errors have one line each
		for i, line := range lines {
			lines[i] = printable(line)
		}
		fmt.Fprintf(w, "%s %s\n", styled(w, red, "weir:"), strings.Join(lines, "\n  "))
		if p != nil && p.hint != "" {
			fmt.Fprintf(w, "  %s\n", p.hint)
		}
	}
	return code
}
