package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type queueWorkCmd struct {
	serverFlags
	Name        string    `arg:"" names:"queue" help:"The queue's name."`
	Command     []string  `arg:"" passthrough:"" help:"The command and its arguments, after --."`
	Concurrency int       `help:"Run up to this many commands at the same time." default:"1"`
	Lease       *duration `help:"How long a claim lasts; it is extended while the command runs. Default: the queue's setting lease_ms." placeholder:"TIME"`
	Worker      string    `help:"A name of this worker, for humans to read. Default: the name of the machine and the process id." placeholder:"NAME"`
	RejectOn    []int     `help:"An exit status that means: no further attempt; the message becomes a dead letter. May be given again." placeholder:"STATUS"`
	MaxTime     *duration `help:"How long one command may run. After this time it is killed, and the attempt has failed. Default: no limit." placeholder:"TIME"`
	Drain       duration  `help:"How long commands may still run after a signal. After this time they are killed, and their messages come again immediately; the attempt does not count." default:"30s"`
	UntilEmpty  bool      `help:"Stop when the queue has no ready message."`
	Max         int       `help:"Stop after this many messages; 0: no limit." short:"n" default:"0"`
}

func (queueWorkCmd) Help() string {
	return `The command gets the message on its standard input, and these variables:

  WEIR_MESSAGE_QUEUE, WEIR_MESSAGE_ID, WEIR_MESSAGE_ATTEMPT, WEIR_MESSAGE_TIMESTAMP (milliseconds)
  WEIR_MESSAGE_KEY      the key; or WEIR_MESSAGE_KEY_B64, in base64, if it is not UTF-8 or has a zero byte
  WEIR_MESSAGE_HEADERS  the headers as JSON: [{"name": "a", "value": "1"}], with value_b64 if a value is not UTF-8
  TRACEPARENT, TRACESTATE  the headers traceparent and tracestate

A variable is empty if the message does not have the field, or if the field has more than 64 KiB.

Exit status 0 acknowledges the message. Any other status gives it back, with the end of the command's standard error as the reason: it comes again after a pause, or becomes a dead letter.
A message may come more than once: if a worker dies, or cannot reach the server for longer than the lease, another worker gets its messages.
A command is killed when the server answers that its claim is lost. While the server cannot be reached, the command continues; its result is sent when the server is back, and counts if no other worker has got the message in the meantime.

SIGTERM or Ctrl-C stops the worker in order: it claims no more messages, and waits for the running commands. A second signal kills it.
Commands that still run after the time of --drain are killed, and these attempts do not count. If weir cannot report this to the server within 2s, their messages come again when their leases end.

Examples:

  weir queue work mail -- ./send-mail
  weir queue work mail --concurrency 8 --lease 2m -- sh -c 'curl -sf --data-binary @- https://hooks.example.org/'
  weir queue work mail --until-empty -- cat`
}

// Bounds of a worker.
const (
	workConcurrencyMax = 1000
	claimWait          = 20 * time.Second
	stderrTail         = 4000 // last bytes of a command's standard error that a nack sends; a queue keeps about as many
	retryPause         = 500 * time.Millisecond
	variableMax        = 64 << 10        // Linux starts no command with a variable of 128 KiB
	lastWord           = 2 * time.Second // time after the drain to give back the messages of killed commands
)

// claimedMessage is a message as a claim gives it.
type claimedMessage struct {
	ID        string  `json:"id"`
	Receipt   string  `json:"receipt"`
	Attempt   int     `json:"attempt"`
	Timestamp int64   `json:"timestamp"`
	Key       *string `json:"key"`
	KeyB64    *string `json:"key_b64"`
	Value     *string `json:"value"`
	ValueB64  *string `json:"value_b64"`

	Headers json.RawMessage `json:"headers"`
}

func (m *claimedMessage) value() []byte {
	if m.ValueB64 != nil {
		raw, _ := base64.StdEncoding.DecodeString(*m.ValueB64) // the server made it
		return raw
	}
	return []byte(*cmp.Or(m.Value, new(string)))
}

// variables are the environment variables that describe a message to its command. All are set, so
// that none comes from weir's own environment.
func (m *claimedMessage) variables() []string {
	key, binary := cmp.Or(m.Key, new(string)), cmp.Or(m.KeyB64, new(string))
	if strings.Contains(*key, "\x00") {
		encoded := base64.StdEncoding.EncodeToString([]byte(*key))
		key, binary = new(string), &encoded
	}
	var headers []struct{ Name, Value string }
	_ = json.Unmarshal(m.Headers, &headers) // the server made it
	trace := map[string]string{}
	for _, h := range headers {
		if !strings.Contains(h.Value, "\x00") {
			trace[h.Name] = h.Value
		}
	}
	list := []string{
		"WEIR_MESSAGE_ID=" + m.ID, "WEIR_MESSAGE_ATTEMPT=" + strconv.Itoa(m.Attempt), "WEIR_MESSAGE_TIMESTAMP=" + strconv.FormatInt(m.Timestamp, 10),
		"WEIR_MESSAGE_KEY=" + *key, "WEIR_MESSAGE_KEY_B64=" + *binary, "WEIR_MESSAGE_HEADERS=" + string(m.Headers),
		"TRACEPARENT=" + trace["traceparent"], "TRACESTATE=" + trace["tracestate"],
	}
	for i, v := range list {
		if len(v) > variableMax {
			list[i], _, _ = strings.Cut(v, "=")
			list[i] += "="
		}
	}
	return list
}

// worker runs a command for each message.
type worker struct {
	*queueWorkCmd
	t     *terminal
	lease time.Duration
	slots chan struct{}   // a value for each command that runs
	kill  context.Context // ends when the drain is over: then commands are killed
	give  context.Context // ends lastWord after the drain: then nothing more is sent to the server

	claimID string // id of the claim that was not answered yet: repeated with it, the claim gets the same messages

	mu     sync.Mutex // guards t's writers, and what follows
	done   int64
	failed int64
	gone   int64 // claims that were lost, or whose outcome is not known

	claimsFail, answersFail bool // claimsFail: the last claim got no answer; answersFail: the last ack, nack or extension got none
}

func (c *queueWorkCmd) Run(ctx context.Context, t *terminal) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	switch {
	case len(c.Command) == 0:
		return usage(errors.New("the command is missing"), "write it after --: weir queue work "+c.Name+" -- ./handle")
	case c.Concurrency < 1 || c.Concurrency > workConcurrencyMax:
		return usage(fmt.Errorf("--concurrency %d: it must be from 1 to %d", c.Concurrency, workConcurrencyMax), "")
	case c.Max < 0:
		return usage(fmt.Errorf("--max %d is negative", c.Max), "give 1 or more, or 0 for no limit")
	case c.MaxTime != nil && *c.MaxTime == 0:
		return usage(errors.New("--max-time must be more than 0"), "give a longer time, or leave the flag out for no limit")
	}
	if err := checkLease(c.Lease); err != nil {
		return err
	}
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return usage(fmt.Errorf("the command %q cannot be run: %w", c.Command[0], err), "no message was claimed")
	}
	if c.Worker == "" {
		host, _ := os.Hostname()
		c.Worker = host + "-" + strconv.Itoa(os.Getpid())
	}
	var q queuePicture
	if err := c.ask(ctx, "GET", apiPath("queues", c.Name), nil, &q, 0); err != nil {
		return c.answer(fmt.Sprintf("work queue %q", c.Name), err)
	}
	lease, _ := q.Settings["lease_ms"].(float64)
	w := &worker{queueWorkCmd: c, t: t, lease: time.Duration(lease) * time.Millisecond, slots: make(chan struct{}, c.Concurrency)}
	if c.Lease != nil {
		w.lease = time.Duration(*c.Lease)
	}
	err := w.run(ctx)
	fmt.Fprintf(t.err, "%s handled, %d failed\n", plural(w.done, "message"), w.failed)
	if w.gone > 0 {
		fmt.Fprintf(t.err, "%s may come again: the claim was lost, or the server did not confirm the result\n", plural(w.gone, "message"))
	}
	return err
}

// run claims and handles until ctx ends or there is nothing left to do. Then it waits for the
// commands that run.
func (w *worker) run(ctx context.Context) error {
	kill, killAll := context.WithCancel(context.WithoutCancel(ctx))
	defer killAll()
	give, endGiving := context.WithCancel(context.WithoutCancel(ctx))
	defer endGiving()
	w.kill, w.give = kill, give
	stop := context.AfterFunc(ctx, func() {
		pauseFor(give, time.Duration(w.Drain))
		killAll()
		pauseFor(give, lastWord)
		endGiving()
	})
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	left, failures := w.Max, 0
	for ctx.Err() == nil && (w.Max == 0 || left > 0) {
		n, err := w.free(ctx, left)
		if err != nil {
			break
		}
		messages, err := w.claim(ctx, n)
		switch {
		case ctx.Err() != nil:
		case err != nil && w.fatal(err):
			return w.answer(fmt.Sprintf("work queue %q", w.Name), err)
		case err != nil:
			failures++
			w.outage(&w.claimsFail, "claims", err)
			pauseFor(ctx, retryPause*time.Duration(min(failures, 10)))
		default:
			failures = 0
			w.outage(&w.claimsFail, "claims", nil)
		}
		for range n - len(messages) {
			<-w.slots
		}
		if err == nil && len(messages) == 0 && w.UntilEmpty && len(w.slots) == 0 {
			break
		}
		left -= len(messages)
		for _, m := range messages {
			running.Go(func() {
				defer func() { <-w.slots }()
				w.handle(m)
			})
		}
	}
	running.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// free waits until a slot is free, and takes all free slots; if w.Max is set, it takes at most left
// of them.
func (w *worker) free(ctx context.Context, left int) (n int, err error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n = 1; w.Max == 0 || n < left; n++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return n, nil
		}
	}
	return n, nil
}

func (w *worker) claim(ctx context.Context, most int) ([]claimedMessage, error) {
	wait := claimWait
	if w.UntilEmpty {
		wait = 0
		if len(w.slots) > most { // other commands run, and may give messages back
			wait = time.Second
		}
	}
	var got struct {
		Messages []claimedMessage `json:"messages"`
	}
	body := map[string]any{"max": most, "wait_ms": wait.Milliseconds(), "worker": w.Worker, "lease_ms": w.lease.Milliseconds()}
	if w.claimID == "" {
		w.claimID = rand.Text()
	}
	body["id"] = w.claimID
	err := w.ask(ctx, "POST", apiPath("queues", w.Name, "claim"), body, &got, wait)
	if err == nil {
		w.claimID = ""
	}
	return got.Messages, err
}

// fatal reports whether trying again makes no sense. After 408 and 429 nothing happened, and
// another try may succeed.
func (w *worker) fatal(err error) bool {
	var p *apiProblem
	var own *problem
	return errors.As(err, &p) && p.Status < 500 && p.Status != http.StatusRequestTimeout && p.Status != http.StatusTooManyRequests ||
		errors.As(err, &own) && own.code == exitUsage
}

// outage says once when requests of a kind begin to fail, and once when they are answered again.
func (w *worker) outage(failing *bool, what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && !*failing:
		fmt.Fprintf(w.t.err, "weir: %s: %v; trying again\n", what, err)
	case err == nil && *failing:
		fmt.Fprintf(w.t.err, "weir: %s work again\n", what)
	}
	*failing = err != nil
}

func (w *worker) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.t.err, format, args...)
}

// handle runs the command for one message, and answers for it.
func (w *worker) handle(m claimedMessage) {
	ctx, cancel := context.WithCancel(w.kill)
	defer cancel()
	if w.MaxTime != nil {
		var over context.CancelFunc
		ctx, over = context.WithTimeout(ctx, time.Duration(*w.MaxTime))
		defer over()
	}
	lost := make(chan struct{})
	var extending sync.WaitGroup
	extending.Go(func() { w.extend(ctx, m, lost, cancel) })
	tail := &tailWriter{w: w}
	command := exec.CommandContext(ctx, w.Command[0], w.Command[1:]...)
	command.Stdin = bytes.NewReader(m.value())
	command.Stdout, command.Stderr = &sharedWriter{w}, tail
	command.Env = append(append(os.Environ(), "WEIR_MESSAGE_QUEUE="+w.Name), m.variables()...)
	ownGroup(command)
	command.WaitDelay = time.Second // for processes that the command left behind with its output open
	err := command.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the command itself ended well
	}
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	cancel()
	extending.Wait()
	select {
	case <-lost:
		w.say("weir: message %s: its claim was lost\n", m.ID)
		w.count(&w.gone)
		return
	default:
	}
	if err == nil {
		w.answerFor(m, "ack", map[string]any{}, &w.done)
		return
	}
	body := map[string]any{}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		if slices.Contains(w.RejectOn, exit.ExitCode()) {
			body["reject"] = true
		}
	case w.kill.Err() != nil:
		err, body["uncounted"] = errors.New("the worker was stopped, and the command did not end within --drain"), true
	case late:
		err = fmt.Errorf("the command ran for longer than --max-time %v, and was killed", time.Duration(*w.MaxTime))
	}
	body["error"] = err.Error()
	if said := strings.TrimSpace(strings.ToValidUTF8(string(tail.last), "?")); said != "" {
		body["error"] = err.Error() + ": " + said
	}
	w.say("weir: message %s, attempt %d: %v\n", m.ID, m.Attempt, err)
	w.answerFor(m, "nack", body, &w.failed)
}

// extend keeps the lease alive until ctx ends. When the claim is lost it ends the command.
func (w *worker) extend(ctx context.Context, m claimedMessage, lost chan<- struct{}, end context.CancelFunc) {
	ticker := time.NewTicker(max(w.lease/3, 20*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		stale, _, _ := w.post(ctx, m, "extend", map[string]any{"lease_ms": w.lease.Milliseconds()}) // after an error the next tick tries again
		if stale {
			close(lost)
			end()
			return
		}
	}
}

// answerFor acknowledges a message or gives it back. It tries again until the server has answered,
// also after the lease: the ack counts as long as nobody else claimed the message. It gives up
// lastWord after the end of the drain.
func (w *worker) answerFor(m claimedMessage, verb string, body map[string]any, count *int64) {
	for {
		stale, done, err := w.post(w.give, m, verb, body)
		switch {
		case err == nil && (!stale || done):
			w.count(count)
			return
		case stale, err != nil && w.fatal(err), w.give.Err() != nil:
			w.say("weir: message %s: the %s had no effect: %v\n", m.ID, verb, cmp.Or(err, errors.New("the claim was lost")))
			w.count(&w.gone)
			return
		}
		pauseFor(w.give, retryPause)
	}
}

func (w *worker) count(n *int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// postTimeout is the minimum time of one try to send a receipt. A try has a third of the lease, so
// that there is time for another try before the lease ends.
const postTimeout = 10 * time.Second

// post sends a receipt. stale: its claim is over. done: it is over because the message is done.
func (w *worker) post(ctx context.Context, m claimedMessage, verb string, body map[string]any) (stale, done bool, err error) {
	defer func(ended context.Context) {
		if ended.Err() == nil && !w.fatal(err) {
			w.outage(&w.answersFail, "acks, nacks and extensions", err)
		}
	}(ctx)
	ctx, cancel := context.WithTimeout(ctx, max(w.lease/3, postTimeout))
	defer cancel()
	body["receipts"] = []string{m.Receipt}
	var got struct {
		Results []struct {
			Status  int
			Problem *apiProblem
		}
	}
	err = w.ask(ctx, "POST", apiPath("queues", w.Name, verb), body, &got, 0)
	if err == nil && len(got.Results) != 1 {
		err = fmt.Errorf("the server returned %d results for one receipt", len(got.Results))
	}
	if err == nil && got.Results[0].Problem != nil {
		err = got.Results[0].Problem // an older server answers so
	}
	var p *apiProblem
	if errors.As(err, &p) && (p.is("stale_receipt") || p.is("bad_receipt")) {
		return true, p.Done, nil
	}
	return false, false, err
}

func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sharedWriter lets the commands write to one standard output.
type sharedWriter struct{ w *worker }

func (s *sharedWriter) Write(b []byte) (int, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.t.out.Write(b)
}

// tailWriter passes a command's standard error on, and keeps its end.
type tailWriter struct {
	w    *worker
	last []byte
}

func (t *tailWriter) Write(b []byte) (int, error) {
	t.last = append(t.last, b...)
	if over := len(t.last) - stderrTail; over > 0 {
		t.last = slices.Delete(t.last, 0, over)
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	return t.w.t.err.Write(b)
}
