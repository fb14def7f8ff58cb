package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
)

// queueServer serves a store, and points the queue commands at it.
func queueServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := serve(t, append([]string{"--kafka", "off"}, args...)...)
	t.Setenv("WEIR_SERVER", "http://"+s.http)
	return s
}

// eachStore runs a test on an empty store of each kind.
func eachStore(t *testing.T, test func(t *testing.T, store string)) {
	t.Helper()
	stores := durableStores(t)
	stores["memory"] = "memory:"
	for name, store := range stores {
		t.Run(name, func(t *testing.T) { test(t, store) })
	}
}

// pipe makes a pipe that a command waits at. What release writes ends that.
func pipe(t *testing.T) (path string, release func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		if err := os.WriteFile(path, nil, 0); err != nil {
			t.Error(err)
		}
	}
}

// until waits for a line on a command's output.
func (l *lockedBuffer) until(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.changed:
		case <-time.After(30 * time.Second):
			t.Fatalf("there is no %q in %s", text, l.String())
		}
	}
}

func TestAMessageIsFoundByTheIDThatSQLGaveIt(t *testing.T) {
	address := pgtest.URL(t)
	s := queueServer(t, "--store", address)
	defer s.stop()
	weir(t, "", "queue", "create", "mail").want(t, exitOK)
	pgtest.Exec(t, address, `SELECT weir.enqueue('mail', 'first')`)
	id := pgtest.Value(t, address, `SELECT weir.enqueue_id('mail', 'second')::text`)
	for { // until it is moved
		if r := weir(t, "", "queue", "peek", "mail", id, "--output", "json"); !strings.Contains(r.out, `"sent"`) {
			r.want(t, exitOK, `"ready"`, `"id": "`+pgtest.Value(t, address, `SELECT message FROM weir.message_state('mail', `+id+`)`)+`"`)
			break
		}
	}
	weir(t, "", "queue", "peek", "mail", "4711").want(t, exitFailed, "has no message 4711")
}

func TestAScheduleFromItsCreationToItsEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		s := queueServer(t, "--store", store)
		defer s.stop()
		weir(t, "", "queue", "create", "mail").want(t, exitOK)
		weir(t, "", "queue", "schedule", "create", "mail", "digest", "--cron", "30 8 * * MON-FRI", "--zone", "Europe/Berlin", "--value", "hello").want(t, exitOK, "set schedule digest of queue mail, next at 2")
		weir(t, "\xff", "queue", "schedule", "create", "mail", "bytes", "--cron", "@daily", "--paused").want(t, exitOK, "paused")
		weir(t, "", "queue", "schedule", "list", "mail").want(t, exitOK, "SCHEDULE", "digest", "open", "Europe/Berlin", "30 8 * * MON-FRI", "bytes", "paused", "UTC")
		weir(t, "", "queue", "schedule", "list", "mail", "--output", "json").want(t, exitOK, `"cron": "@daily"`)
		weir(t, "", "queue", "schedule", "describe", "mail", "bytes").want(t, exitOK, `"value_b64": "/w=="`)
		weir(t, "", "queue", "schedule", "create", "mail", "never", "--cron", "0 0 30 2 *", "--value", "x").want(t, exitUsage, "30 2", "never matches")
		weir(t, strings.Repeat("x", scheduledMax+1), "queue", "schedule", "create", "mail", "large", "--cron", "@daily").want(t, exitUsage, "65536")
		weir(t, "", "queue", "schedule", "delete", "mail", "digest").want(t, exitOK, "deleted schedule digest of queue mail")
		for _, verb := range []string{"describe", "delete"} {
			weir(t, "", "queue", "schedule", verb, "mail", "digest").want(t, exitFailed, "the schedule does not exist", "weir queue schedule list")
		}
		weir(t, "", "queue", "schedule", "list", "none").want(t, exitFailed, "the queue does not exist")
	})
}

func TestAQueueFromItsCreationToItsEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		s := queueServer(t, "--store", store)
		weir(t, "", "queue", "create", "mail", "--attempts", "2", "--retry-delay", "1ms", "--unique", "--priorities", "2", "--lease", "1m").want(t, exitOK, "created queue mail on topic mail")
		weir(t, "", "queue", "create", "mail").want(t, exitFailed, "exists", "--if-not-exists")
		weir(t, "", "queue", "create", "mail", "--if-not-exists").want(t, exitOK, "already exists")
		weir(t, "", "queue", "list").want(t, exitOK, "QUEUE", "mail", "open")
		weir(t, "", "queue", "alter", "mail", "--rate", "1000", "--unset", "lease_ms").want(t, exitOK, "changed 2 settings")
		weir(t, "", "queue", "describe", "mail").want(t, exitOK, "READY", "lease_ms", "30000", "rate", "1000")
		weir(t, "", "queue", "alter", "mail", "--unset", "rate").want(t, exitOK)
		weir(t, "a\nb\r\n", "queue", "send", "mail", "--key", "k").want(t, exitOK, "2 messages enqueued")
		r := weir(t, `{"value":"urgent","priority":1,"unique":"u"}`+"\n\n"+`{"value":"again","unique":"u"}`, "queue", "send", "mail", "--input", "json", "--ids")
		r.want(t, exitOK, "1 message enqueued, 1 not, because another message has the unique key")
		ids := strings.Fields(r.out)
		if len(ids) != 3 || ids[0] != ids[1] || ids[2] != "repeated" {
			t.Errorf("ids of a unique key: %q", ids)
		}
		weir(t, "later", "queue", "send", "mail", "--delay", "1h", "--ids").want(t, exitOK, "-0\n")
		weir(t, "", "queue", "peek", "mail", ids[0]).want(t, exitOK, "ready")
		weir(t, "", "queue", "peek", "mail").want(t, exitOK, "urgent", "ready", "a", "b")
		weir(t, "", "queue", "peek", "mail", "--state", "delayed").want(t, exitOK, "delayed", "later")
		weir(t, "", "queue", "peek", "mail", "--state", "ready", "-n", "2", "--output", "json").want(t, exitOK, `"state": "ready"`)
		weir(t, "", "queue", "peek", "mail", "--state", "lost").want(t, exitUsage, "ready, claimed, waiting, delayed, done")
		weir(t, "", "queue", "peek", "mail", "--state", "ready", "--dead").want(t, exitUsage, "give one of them")
		weir(t, "", "queue", "pause", "mail").want(t, exitOK, "paused queue mail")
		weir(t, "", "queue", "work", "mail", "--until-empty", "--", "cat").want(t, exitOK, "0 messages handled")
		weir(t, "", "queue", "resume", "mail").want(t, exitOK, "resumed queue mail")
		weir(t, "", "queue", "work", "mail", "-n", "1", "--", "cat").want(t, exitOK, "urgent", "1 message handled")
		weir(t, "", "queue", "work", "mail", "-n", "2", "--reject-on", "7", "--", "sh", "-c", "echo no such address >&2; exit 7").want(t, exitOK, "2 failed")
		weir(t, "", "queue", "peek", "mail", "--dead").want(t, exitOK, "LETTER", "rejected", "exit status 7: no such address")
		weir(t, "", "queue", "peek", "mail", "--dead", "--output", "json").want(t, exitOK, `"letters"`)
		var dead struct{ Letters []peeked }
		if err := json.Unmarshal([]byte(weir(t, "", "queue", "peek", "mail", "--dead", "--output", "json").out), &dead); err != nil || len(dead.Letters) != 2 {
			t.Fatalf("%v, %+v", err, dead)
		}
		letter, message := dead.Letters[0].Letter, dead.Letters[0].ID
		weir(t, "", "queue", "redrive", "mail", "999-1").want(t, exitFailed, "moved 0 dead letters", "999-1", "weir queue peek QUEUE --dead")
		weir(t, "", "queue", "redrive", "mail", "999-1", message).want(t, exitFailed, "moved 1 dead letter", "999-1")
		weir(t, "", "queue", "redrive", "mail", message).want(t, exitFailed, "moved 0 dead letters", message)
		weir(t, "", "queue", "redrive", "mail", letter).want(t, exitFailed, "moved 0 dead letters", letter)
		weir(t, "", "queue", "work", "mail", "-n", "1", "--reject-on", "7", "--", "sh", "-c", "exit 7").want(t, exitOK, "1 failed")
		weir(t, "", "queue", "redrive", "mail", message, "--discard", "--yes").want(t, exitOK, "discarded 1 dead letter\n")
		weir(t, "", "queue", "redrive", "mail", message, "--discard", "--yes").want(t, exitFailed, "discarded 0 dead letters", message)
		weir(t, "", "queue", "redrive", "mail", dead.Letters[1].Letter).want(t, exitOK, "moved 1 dead letter\n")
		weir(t, "", "queue", "work", "mail", "-n", "1", "--reject-on", "7", "--", "sh", "-c", "exit 7").want(t, exitOK, "1 failed")
		weir(t, "again", "queue", "send", "mail").want(t, exitOK)
		weir(t, "", "queue", "work", "mail", "-n", "1", "--reject-on", "7", "--", "sh", "-c", "exit 7").want(t, exitOK, "1 failed")
		weir(t, "", "queue", "redrive", "mail", "--all", "--rate", "100").want(t, exitOK, "moved 2 dead letters")
		weir(t, "", "queue", "redrive", "mail", "--all", "--discard").want(t, exitUsage, "is not a terminal")
		weir(t, "", "queue", "redrive", "mail", "--all", "--discard", "--yes").want(t, exitOK, "discarded 0 dead letters")
		weir(t, "", "queue", "describe", "mail", "--output", "json").want(t, exitOK, `"ready": 2`, `"dead": 0`)
		weir(t, "", "queue", "purge", "mail").want(t, exitUsage, "is not a terminal")
		weir(t, "", "queue", "purge", "mail", "--yes").want(t, exitOK, "purged queue mail")
		weir(t, "", "queue", "describe", "mail", "--output", "json").want(t, exitOK, `"ready": 0`)
		weir(t, "", "queue", "delete", "mail", "--yes").want(t, exitOK, "deleted queue mail")
		for _, args := range [][]string{{"describe", "mail"}, {"work", "mail", "--", "cat"}, {"purge", "mail", "--yes"}, {"delete", "mail", "--yes"}, {"peek", "mail"}} {
			weir(t, "", append([]string{"queue"}, args...)...).want(t, exitFailed, "the queue does not exist", "weir queue create")
		}
		s.stop()
		weir(t, "", "queue", "list", "--timeout", "1s").want(t, exitUnreachable, "no answer from a server", "weir serve")
	})
}

// The metrics of a server tell of its queues what their messages are, and how long the oldest ready
// one has waited.
func TestMetricsTellWhatAQueueHas(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		s := queueServer(t, "--store", store)
		weir(t, "", "queue", "create", "mail", "--partitions", "1", "--lease", "1h").want(t, exitOK)
		weir(t, "", "queue", "create", "bills").want(t, exitOK)
		weir(t, "a\nb\nc\nd\n", "queue", "send", "mail").want(t, exitOK)
		weir(t, "later", "queue", "send", "mail", "--delay", "1h").want(t, exitOK)
		weir(t, "", "queue", "work", "mail", "-n", "1", "--reject-on", "7", "--", "sh", "-c", "exit 7").want(t, exitOK)
		response, err := http.Post("http://"+s.http+"/v1/queues/mail/claim", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		for state, n := range map[string]int{"ready": 2, "claimed": 1, "waiting": 0, "delayed": 1, "dead": 1} {
			s.metric(t, fmt.Sprintf("weir_queue_messages{queue=\"mail\",state=%q} %d\n", state, n))
			s.metric(t, fmt.Sprintf("weir_queue_messages{queue=\"bills\",state=%q} 0\n", state))
		}
		s.metric(t, "weir_queues 2\n")
		s.metric(t, "weir_queue_delayed_messages 1\n")
		s.metric(t, `weir_queue_oldest_ready_seconds{queue="bills"} 0`+"\n")
		var waited float64
		_, body := s.get(t, "/metrics")
		_, rest, _ := strings.Cut(body, `weir_queue_oldest_ready_seconds{queue="mail"} `)
		if _, err := fmt.Sscan(rest, &waited); err != nil || waited <= 0 || waited > 60 {
			t.Errorf("the oldest ready message has waited for %v s, %v", waited, err)
		}
	})
}

// Finished messages are shown with the time when they were done.
func TestPeekShowsWhenMessagesWereDone(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		queueServer(t, "--store", store)
		weir(t, "", "queue", "create", "mail", "--partitions", "1", "--keep-done").want(t, exitOK)
		weir(t, "a\nb\nc\n", "queue", "send", "mail").want(t, exitOK)
		const apart = 4 * time.Second                         // the clocks of the store and of the test, at most; on S3 a process knows the store's only about so exactly
		began := time.Now().Add(-apart).Truncate(time.Second) // the table shows whole seconds
		weir(t, "", "queue", "work", "mail", "-n", "2", "--concurrency", "1", "--", "cat").want(t, exitOK, "2 messages handled")
		list := strings.Split(strings.TrimSpace(weir(t, "", "queue", "peek", "mail", "--state", "done").out), "\n")[1:]
		if len(list) != 2 {
			t.Fatalf("finished messages: %q, want two", list)
		}
		for i, line := range list {
			id := strings.Fields(line)[0]
			for what, line := range map[string]string{"listed": line, "alone": strings.Split(weir(t, "", "queue", "peek", "mail", id).out, "\n")[1]} {
				f := strings.Fields(line)
				if len(f) < 5 || f[0] != id || f[1] != "done" || f[2] != "1" {
					t.Fatalf("finished message %d, %s: %q", i, what, line)
				}
				if at, err := time.Parse(time.RFC3339, f[3]); err != nil || at.Before(began) || at.After(time.Now().Add(apart)) {
					t.Errorf("finished message %d, %s, was done at %s, and handled from %v on (%v)", i, what, f[3], began, err)
				}
			}
		}
	})
}

// Dead letters that do not fit into one answer of the server are shown all the same, as many as are
// asked for.
func TestPeekShowsAsManyDeadLettersAsAreAskedFor(t *testing.T) {
	s := queueServer(t, "--store", "memory:")
	weir(t, "", "queue", "create", "mail", "--partitions", "1").want(t, exitOK)
	const letters = 6 // an answer has about 4 MiB of them
	for range letters {
		response, err := http.Post("http://"+s.http+"/v1/queues/mail/messages", "text/plain", strings.NewReader(strings.Repeat("m", 1_000_000)))
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		response.Body.Close()
	}
	weir(t, "", "queue", "work", "mail", "-n", "6", "--reject-on", "7", "--", "sh", "-c", "cat >/dev/null; exit 7").want(t, exitOK, "6 failed")
	for max, want := range map[string]int{"20": letters, "5": 5, "1": 1} {
		if lines := strings.Count(weir(t, "", "queue", "peek", "mail", "--dead", "-n", max).out, "\n") - 1; lines != want {
			t.Errorf("peek --dead -n %s shows %d dead letters, want %d", max, lines, want)
		}
	}
}

func TestACommandLearnsOfItsMessageAndItsExitStatusIsTheAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		queueServer(t, "--store", store)
		weir(t, "", "queue", "create", "mail", "--attempts", "3", "--retry-delay", "0s", "--partitions", "1").want(t, exitOK)
		weir(t, `{"value_b64":"/wA=","key":"k"}`, "queue", "send", "mail", "--input", "json", "--ids").want(t, exitOK)
		// It fails twice, and tells what it got the third time.
		r := weir(t, "", "queue", "work", "mail", "-n", "3", "--", "sh", "-c",
			`[ $WEIR_MESSAGE_ATTEMPT = 3 ] || { head -c 9000 /dev/zero | tr '\0' x >&2; echo the end >&2; exit 1; }; od -An -tx1; echo $WEIR_MESSAGE_KEY $WEIR_MESSAGE_QUEUE $WEIR_MESSAGE_ID`)
		r.want(t, exitOK, " ff 00\n", "k mail ", "1 message handled, 2 failed", "attempt 2: exit status 1")
		weir(t, "", "queue", "describe", "mail", "--output", "json").want(t, exitOK, `"ready": 0`, `"dead": 0`, `"claimed": 0`)

		weir(t, "x", "queue", "send", "mail").want(t, exitOK)
		weir(t, "", "queue", "work", "mail", "-n", "3", "--", "sh", "-c", "head -c 9000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 1").want(t, exitOK, "3 failed")
		var page struct {
			Letters []struct{ Error, Reason string }
		}
		if err := json.Unmarshal([]byte(weir(t, "", "queue", "peek", "mail", "--dead", "--output", "json").out), &page); err != nil || len(page.Letters) != 1 {
			t.Fatal(err, page)
		}
		if e := page.Letters[0].Error; len(e) > 4<<10 || !strings.HasPrefix(e, "exit status 1: x") || !strings.HasSuffix(e, "the end") || page.Letters[0].Reason != "attempts" {
			t.Errorf("the dead letter has an error of %d bytes, %.20q… for %s", len(e), e, page.Letters[0].Reason)
		}
		weir(t, "", "queue", "work", "mail", "--", "/no/such/command").want(t, exitUsage, "cannot be run", "no message was claimed")
		weir(t, "", "queue", "work", "mail").want(t, exitUsage)
		weir(t, "", "queue", "work", "mail", "--concurrency", "0", "--", "cat").want(t, exitUsage, "--concurrency 0")
		weir(t, "", "queue", "create", "a/b").want(t, exitUsage, "a-z")
		weir(t, "", "queue", "alter", "mail").want(t, exitUsage, "nothing to change")
		weir(t, "", "queue", "alter", "mail", "--lease", "365d").want(t, exitUsage, "--lease 8760h0m0s: it must be from 100ms to 12h0m0s")
		weir(t, "", "queue", "create", "other", "--lease", "10ms").want(t, exitUsage, "--lease 10ms: it must be from 100ms to 12h0m0s")
		weir(t, "", "queue", "send", "mail", "hello").want(t, exitUsage, `unexpected argument hello`, "messages are read from standard input: echo MESSAGE | weir queue send QUEUE")
		weir(t, "", "queue", "redrive", "mail").want(t, exitUsage, "give either dead letters or --all")
		weir(t, "not JSON", "queue", "send", "mail", "--input", "json").want(t, exitFailed, "line 1", "it is not JSON", "0 messages enqueued")
		weir(t, "x", "queue", "send", "mail", "--priority", "3").want(t, exitUsage, "levels 0 to 0")
		weir(t, "", "queue", "list", "--server", "nowhere").want(t, exitUsage, "--server")
	})
}

// A command that takes longer than the lease keeps its message; a signal lets it finish, and claims
// no other.
func TestAWorkerKeepsItsLeaseAndDrains(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		queueServer(t, "--store", store)
		weir(t, "", "queue", "create", "mail", "--lease", "400ms", "--partitions", "1").want(t, exitOK)
		weir(t, "first\nsecond", "queue", "send", "mail").want(t, exitOK)
		path, release := pipe(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		out := &lockedBuffer{changed: make(chan struct{}, 1)}
		ended := make(chan int)
		go func() {
			ended <- run(ctx, "test", []string{"queue", "work", "mail", "--", "sh", "-c", "echo begun; cat; cat " + path}, &terminal{in: strings.NewReader(""), out: out, err: out}, nil)
		}()
		out.until(t, "first")
		extended := func(times int) {
			t.Helper()
			seen := map[int64]bool{}
			for len(seen) < times { // leases of 400 ms, each begun a third of one after the last
				var page struct {
					Messages []struct {
						State   string
						Until   int64
						Attempt int
					}
				}
				if err := json.Unmarshal([]byte(weir(t, "", "queue", "peek", "mail", "--output", "json").out), &page); err != nil || len(page.Messages) != 2 {
					t.Fatal(err, page)
				}
				if m := page.Messages[0]; m.State != "claimed" || m.Attempt != 1 || page.Messages[1].State != "ready" {
					t.Fatalf("while the command runs: %+v", page.Messages)
				}
				seen[page.Messages[0].Until] = true
			}
		}
		extended(5)
		cancel(stopped{syscall.SIGTERM})
		extended(5) // it goes on with its message
		select {
		case code := <-ended:
			t.Fatalf("it ended with %d while its command ran: %s", code, out)
		default:
		}
		release()
		if code := <-ended; code != 128+int(syscall.SIGTERM) {
			t.Errorf("exit code %d: %s", code, out)
		}
		out.until(t, "1 message handled, 0 failed")
		weir(t, "", "queue", "describe", "mail", "--output", "json").want(t, exitOK, `"ready": 1`, `"claimed": 0`)
	})
}

// After --drain a command is killed, with all that it started. Its message comes again without the
// queue's pause.
func TestADrainHasAnEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		queueServer(t, "--store", store)
		weir(t, "", "queue", "create", "mail", "--retry-delay", "1h", "--partitions", "1").want(t, exitOK)
		weir(t, "first", "queue", "send", "mail").want(t, exitOK)
		path, _ := pipe(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		out := &lockedBuffer{changed: make(chan struct{}, 1)}
		ended := make(chan int)
		go func() {
			ended <- run(ctx, "test", []string{"queue", "work", "mail", "--drain", "50ms", "--", "sh", "-c", "cat; cat " + path + "; true"}, &terminal{in: strings.NewReader(""), out: out, err: out}, nil)
		}()
		out.until(t, "first")
		cancel(stopped{syscall.SIGINT})
		if code := <-ended; code != 128+int(syscall.SIGINT) {
			t.Errorf("exit code %d: %s", code, out)
		}
		out.until(t, "0 messages handled, 1 failed")
		weir(t, "", "queue", "work", "mail", "-n", "1", "--", "sh", "-c", "echo attempt $WEIR_MESSAGE_ATTEMPT").want(t, exitOK, "attempt 1") // that it was cut off does not count
	})
}

// A worker goes on when its server was away for a while; what it had handled meanwhile is
// acknowledged.
func TestAWorkerOutlivesARestartOfItsServer(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	s := queueServer(t, "--store", url)
	address := s.http
	weir(t, "", "queue", "create", "mail", "--partitions", "1").want(t, exitOK)
	weir(t, "first", "queue", "send", "mail").want(t, exitOK)
	path, release := pipe(t)
	out := &lockedBuffer{changed: make(chan struct{}, 1)}
	ended := make(chan int)
	go func() {
		ended <- run(t.Context(), "test", []string{"queue", "work", "mail", "-n", "2", "--timeout", "2s", "--", "sh", "-c", "cat; cat " + path}, &terminal{in: strings.NewReader(""), out: out, err: out}, nil)
	}()
	out.until(t, "first")
	if code := s.stop(); code != exitOK {
		t.Fatalf("exit code %d: %s", code, s.out)
	}
	release()
	queueServer(t, "--store", url, "--http", address)
	weir(t, "second", "queue", "send", "mail", "--server", "http://"+address).want(t, exitOK)
	out.until(t, "second")
	release()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, out)
	}
	out.until(t, "2 messages handled, 0 failed")
	weir(t, "", "queue", "describe", "mail", "--output", "json").want(t, exitOK, `"ready": 0`, `"claimed": 0`)
}

func TestSeveralCommandsRunAtOnce(t *testing.T) {
	queueServer(t, "--store", "memory:")
	weir(t, "", "queue", "create", "mail").want(t, exitOK)
	weir(t, "1\n2\n3\n4\n5\n6\n", "queue", "send", "mail").want(t, exitOK)
	path, _ := pipe(t)
	out := &lockedBuffer{changed: make(chan struct{}, 1)}
	ended := make(chan int)
	go func() {
		ended <- run(t.Context(), "test", []string{"queue", "work", "mail", "--concurrency", "3", "--until-empty", "--", "sh", "-c", "cat; echo .; cat " + path}, &terminal{in: strings.NewReader(""), out: out, err: out}, nil)
	}()
	for strings.Count(out.String(), ".") < 3 {
		<-out.changed
	}
	if n := strings.Count(out.String(), "."); n != 3 {
		t.Errorf("%d commands run at once, want 3", n)
	}
	for {
		select {
		case code := <-ended:
			if code != exitOK || !strings.Contains(out.String(), "6 messages handled, 0 failed") {
				t.Errorf("exit code %d: %s", code, out)
			}
			return
		default:
			if f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		}
	}
}

func TestQueueCommandsShowTheirKey(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	made := weir(t, "", "key", "create", "mailer", "--access", "admin", "--queue", "mail", "--store", url, "--output", "json")
	var key struct{ Secret string }
	if err := json.Unmarshal([]byte(made.out), &key); err != nil {
		t.Fatal(err, made)
	}
	queueServer(t, "--store", url)
	weir(t, "", "queue", "list").want(t, exitFailed, "WEIR_API_KEY")
	t.Setenv("WEIR_API_KEY", key.Secret)
	weir(t, "", "queue", "create", "mail").want(t, exitOK)
	weir(t, "", "queue", "create", "bills").want(t, exitFailed, "weir key list")
	if help := weir(t, "", "queue", "list", "--help").out; strings.Contains(help, key.Secret) {
		t.Errorf("the help shows the key: %s", help)
	}
}

// A Kafka client enqueues by producing. A worker handles its records, and a Kafka consumer reads
// them all the same.
func TestWhatAKafkaClientProducesIsWorked(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		s := serve(t, "--store", store)
		t.Setenv("WEIR_SERVER", "http://"+s.http)
		weir(t, "", "queue", "create", "mail", "--attempts", "1", "--partitions", "1").want(t, exitOK)
		weir(t, "k=good\nl=bad\n", "produce", "mail", "--key-separator", "=").want(t, exitOK, "2 records acknowledged")
		r := weir(t, "", "queue", "work", "mail", "-n", "2", "--", "sh", "-c", `echo $WEIR_MESSAGE_KEY $WEIR_MESSAGE_ATTEMPT $(cat | tee /dev/stderr) ; [ $WEIR_MESSAGE_KEY = k ]`)
		r.want(t, exitOK, "k 1 good", "l 1 bad", "1 message handled, 1 failed")
		weir(t, "", "queue", "describe", "mail", "--output", "json").want(t, exitOK, `"ready": 0`, `"claimed": 0`, `"dead": 1`)
		if r := weir(t, "", "consume", "mail", "--group", "readers", "--max", "2"); r.out != "good\nbad\n" {
			t.Errorf("a Kafka consumer reads %q", r.out)
		}
	})
}
