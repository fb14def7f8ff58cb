package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"time"

	"github.com/weir-log/weir/internal/closing"
)

// Harm is a command that is run at random times.
type Harm struct {
	Command string        // for the shell; "": none
	Every   time.Duration // on average; default 30 s
	Seed    uint64        // of the times
}

// outputMost bounds the output of a command in the history, and commandGrace is how long it may go
// on when the run ends.
const (
	outputMost   = 4 << 10
	commandGrace = 30 * time.Second
)

// harm runs the command until ctx ends; then it waits for a command that runs.
func (r *run) harm(ctx context.Context) {
	h := r.Harm
	if h.Every == 0 {
		h.Every = 30 * time.Second
	}
	random := rand.New(rand.NewPCG(h.Seed, 0))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(float64(h.Every) * (0.5 + random.Float64()))):
		}
		r.Say("harm: " + h.Command)
		_ = r.history.Note(Entry{Is: isHarm, Text: h.Command})
		code, output := shell(ctx, h.Command)
		r.Say(fmt.Sprintf("harm: exit code %d", code))
		_ = r.history.Note(Entry{Is: isHarm, Text: output, Code: &code})
	}
}

// shell runs a command to its end, and returns its exit code (-1: it did not run, or was killed)
// and the end of its output.
func shell(ctx context.Context, command string) (code int, output string) {
	running, cancel := closing.Outlive(ctx, commandGrace)
	defer cancel()
	cmd := exec.CommandContext(running, "sh", "-c", command)
	cmd.WaitDelay = time.Second // its children may hold its output open
	out, err := cmd.CombinedOutput()
	out = out[max(0, len(out)-outputMost):]
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return -1, string(out) + err.Error()
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
