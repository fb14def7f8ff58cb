package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// limit is how long a test waits for anything.
const limit = time.Minute

// quick are the settings of tests.
func quick(database, smtp string) settings {
	s := defaults()
	s.database, s.relay = database, relay{address: smtp, from: "shop@example.org"}
	s.queue.Backoff, s.queue.BackoffMax, s.queue.Lease = 20*time.Millisecond, 100*time.Millisecond, 5*time.Second
	s.session = 2 * time.Second
	s.drain = limit
	return s
}

// running is a mailer in this process.
type running struct {
	base  string // of its URLs
	ask   context.CancelFunc
	ended chan error
}

// launch starts a mailer. Requests wait until it answers.
func launch(t *testing.T, s settings) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{base: "http://" + listener.Addr().String(), ask: cancel, ended: make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		err := run(ctx, listener, s)
		if err != nil {
			t.Logf("a mailer ended: %v", err)
		}
		r.ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	return r
}

// stop asks the mailer to stop, and waits until it has.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.ask()
	r.wait(t)
}

func (r *running) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("the mailer ended with: %v", err)
		}
	case <-time.After(limit):
		t.Fatal("the mailer does not end")
	}
}

func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(limit)
	for !yes() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// recipient is who gets the mail of an order.
func recipient(number string) string { return number + "@example.org" }

// request does a request, and returns its status and the answer.
func request(ctx context.Context, method, url, body string) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}

// put places an order, and returns the status.
func put(ctx context.Context, base, number, item string) (status int, err error) {
	body, err := json.Marshal(order{Item: item, Email: recipient(number)})
	if err != nil {
		return 0, err
	}
	status, _, err = request(ctx, "PUT", base+"/orders/"+number, string(body))
	return status, err
}

func place(t *testing.T, base string, numbers ...string) {
	t.Helper()
	for _, number := range numbers {
		if status, err := put(t.Context(), base, number, "two teapots"); err != nil || status != http.StatusCreated {
			t.Fatalf("place order %s: %d, %v", number, status, err)
		}
	}
}

// at returns an order and what became of its mail.
func at(t *testing.T, base, number string) (s state) {
	t.Helper()
	status, text, err := request(t.Context(), "GET", base+"/orders/"+number, "")
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	if err != nil || status != http.StatusOK {
		t.Fatalf("order %s: %d, %s, %v", number, status, text, err)
	}
	return s
}

// becomes waits until the mail of an order has a status, and returns what else is known of it:
// attempts, and the error.
func becomes(t *testing.T, base, number, status string) (attempts int, text string) {
	t.Helper()
	var s state
	eventually(t, fmt.Sprintf("the mail of order %s is %s", number, status), func() bool {
		s = at(t, base, number)
		return s.Mail.Status == status
	})
	if s.Mail.Error != nil {
		text = *s.Mail.Error
	}
	return s.Mail.Attempts, text
}

func TestAMailIsSentOrItsRowSaysWhyNot(t *testing.T) {
	server := newSMTPD(t, func(step, to string, nth int) error {
		switch {
		case step == hello && nth <= 2: // net/smtp says EHLO and then HELO
			return no(554, "we are being mended")
		case step == rcpt && to == recipient("refused"):
			return no(550, "no such user")
		case step == data && to == recipient("refused-late"):
			return no(554, "this is advertising")
		case step == rcpt && to == recipient("deferred") && nth == 1, step == data && to == recipient("deferred") && nth == 1:
			return no(451, "greylisted")
		case step == rcpt && to == recipient("expired"):
			return no(452, "mailbox full")
		}
		return nil
	})
	s := quick(pgtest.URL(t), server.address)
	m := launch(t, s)
	place(t, m.base, "greeted")
	if attempts, text := becomes(t, m.base, "greeted", "sent"); attempts != 2 || text != "" {
		t.Errorf("a mail whose first conversation was refused was sent at attempt %d, error %q", attempts, text)
	}
	place(t, m.base, "plain", "refused", "refused-late", "deferred", "expired")
	if attempts, text := becomes(t, m.base, "plain", "sent"); attempts != 1 || text != "" {
		t.Errorf("a mail without trouble: attempt %d, error %q", attempts, text)
	}
	if attempts, text := becomes(t, m.base, "deferred", "sent"); attempts != 3 || text != "" {
		t.Errorf("a mail that was deferred twice: attempt %d, error %q", attempts, text)
	}
	if attempts, text := becomes(t, m.base, "refused", "failed"); attempts != 1 || text != "RCPT TO: 550 5.1.1 no such user" {
		t.Errorf("a mail that was refused: attempt %d, error %q", attempts, text)
	}
	if attempts, text := becomes(t, m.base, "refused-late", "failed"); attempts != 1 || text != "DATA: 554 5.1.1 this is advertising" {
		t.Errorf("a mail that was refused after its text: attempt %d, error %q", attempts, text)
	}
	eventually(t, "a mail that is always deferred is tried again", func() bool { return at(t, m.base, "expired").Mail.Attempts > 2 })
	if state := at(t, m.base, "expired"); state.Mail.Status != "scheduled" || *state.Mail.Error != "RCPT TO: 452 4.1.1 mailbox full" {
		t.Errorf("a mail that is always deferred is %+v", state.Mail)
	}
	m.stop(t)
	s.queue.TTL = time.Millisecond // its time is over
	m = launch(t, s)
	if attempts, text := becomes(t, m.base, "expired", "expired"); attempts < 3 || text != "it is older than the queue's ttl, 1ms; its last attempt failed: RCPT TO: 452 4.1.1 mailbox full" {
		t.Errorf("a mail whose time is over: attempt %d, error %q", attempts, text)
	}
	m.stop(t)
	for number, want := range map[string]int{"greeted": 1, "plain": 1, "deferred": 1, "refused": 0, "refused-late": 0, "expired": 0} {
		if got := len(server.mails(recipient(number))); got != want {
			t.Errorf("the server took the mail of order %s %d times, want %d", number, got, want)
		}
	}
	h := server.mails(recipient("plain"))[0].Header
	if h.Get("To") != "<plain@example.org>" || h.Get("From") != "<shop@example.org>" || h.Get("Subject") != "Your order plain" || !strings.HasSuffix(h.Get("Message-ID"), "@example.org>") {
		t.Errorf("the mail's headers: %v", h)
	}
}

func TestAnOrderThatIsRolledBackLeavesNoMail(t *testing.T) {
	server := newSMTPD(t, func(string, string, int) error { return nil })
	s := quick(pgtest.URL(t), server.address)
	m := launch(t, s)
	place(t, m.base, "first") // there are tables now
	pgtest.Exec(t, s.database, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not at commit'; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON mailer.orders DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.item = 'refused') EXECUTE FUNCTION refuse()`)
	if status, err := put(t.Context(), m.base, "bad", "refused"); status != http.StatusServiceUnavailable {
		t.Errorf("an order whose transaction fails is answered with %d, %v", status, err)
	}
	place(t, m.base, "second") // what was enqueued before it came before it
	becomes(t, m.base, "first", "sent")
	becomes(t, m.base, "second", "sent")
	m.stop(t)
	if n := pgtest.Value(t, s.database, `SELECT format('%s %s', (SELECT count(*) FROM mailer.orders), (SELECT count(*) FROM mailer.mails))`); n != "2 2" {
		t.Errorf("there are %s orders and mails, want 2 and 2", n)
	}
	log, err := weir.Open(t.Context(), s.database, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close(context.Background())
	eventually(t, "the queue is empty", func() bool {
		stats, err := log.QueueStats(t.Context(), queue)
		return err == nil && stats.Ready+stats.Claimed+stats.Waiting == 0
	})
	if dead, err := log.DeadMessages(t.Context(), queue, weir.MessageID{}, 10); err != nil {
		t.Error(err)
	} else if len(dead) > 0 {
		t.Errorf("there are %d dead letters, the first of mail %s: %s", len(dead), dead[0].Value, dead[0].Error)
	}
	if got := server.counts(); len(got) != 2 || got[recipient("bad")] > 0 {
		t.Errorf("mails were sent to %v", got)
	}
}

func TestAStopWaitsForTheMailThatIsBeingSent(t *testing.T) {
	sending, yes := make(chan struct{}), make(chan struct{})
	server := newSMTPD(t, func(step, to string, _ int) error {
		if step == data && to == recipient("slow") {
			close(sending)
			<-yes
		}
		return nil
	})
	s := quick(pgtest.URL(t), server.address)
	m := launch(t, s)
	place(t, m.base, "slow")
	happens(t, "the mail is being sent", sending)
	m.ask()
	eventually(t, "it takes no more orders", func() bool {
		_, err := put(t.Context(), m.base, "late", "two teapots")
		return err != nil
	})
	select {
	case err := <-m.ended:
		t.Fatalf("the mailer ended while it sent a mail: %v", err)
	default:
	}
	close(yes)
	m.wait(t)
	if got := pgtest.Value(t, s.database, `SELECT format('%s %s', status, attempts) FROM mailer.mails WHERE order_number = 'slow'`); got != "sent 1" {
		t.Errorf("after the stop the mail is %q", got)
	}
	m = launch(t, s)
	place(t, m.base, "next")
	becomes(t, m.base, "next", "sent")
	m.stop(t)
	if n := len(server.mails(recipient("slow"))); n != 1 {
		t.Errorf("the mail was sent %d times", n)
	}
}

// A server that does not answer holds up a stop for the drain time, and no longer; the next mailer
// sends the mail without waiting for a lease.
func TestAStopGivesBackTheMailThatTakesTooLong(t *testing.T) {
	sending, never := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(never) })
	server := newSMTPD(t, func(step, _ string, nth int) error {
		if step == rcpt && nth == 1 {
			close(sending)
			<-never
		}
		return nil
	})
	s := quick(pgtest.URL(t), server.address)
	s.drain, s.queue.Lease = 100*time.Millisecond, time.Hour
	m := launch(t, s)
	place(t, m.base, "slow")
	happens(t, "the mail is being sent", sending)
	m.stop(t)
	if got := pgtest.Value(t, s.database, `SELECT format('%s %s %s', status, attempts, error) FROM mailer.mails`); !strings.HasPrefix(got, "scheduled 1 RCPT TO: ") || !strings.Contains(got, "the worker is being closed") {
		t.Errorf("after the stop the mail is %q", got)
	}
	m = launch(t, s)
	if attempts, _ := becomes(t, m.base, "slow", "sent"); attempts != 1 { // a stop costs no attempt
		t.Errorf("it was sent at attempt %d, want 1", attempts)
	}
	m.stop(t)
}

func TestAMailIsNotSentAgainBecauseTheDatabaseFailsAfterTheYes(t *testing.T) {
	server := newSMTPD(t, func(string, string, int) error { return nil })
	s := quick(pgtest.URL(t), server.address)
	m := launch(t, s)
	place(t, m.base, "first")
	becomes(t, m.base, "first", "sent")
	pgtest.Exec(t, s.database, `
		CREATE SEQUENCE tries; -- which a rollback does not set back
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('tries') <= 2 THEN RAISE 'no luck'; END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON mailer.mails DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.status = 'sent') EXECUTE FUNCTION fail()`)
	place(t, m.base, "unlucky")
	if attempts, _ := becomes(t, m.base, "unlucky", "sent"); attempts != 1 {
		t.Errorf("it was sent at attempt %d", attempts)
	}
	m.stop(t)
	if n := len(server.mails(recipient("unlucky"))); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	if got := pgtest.Value(t, s.database, `SELECT last_value FROM tries`); got != "3" {
		t.Errorf("there were %s tries to write it, want 3", got)
	}
}

func TestMailersShareADatabase(t *testing.T) {
	server := newSMTPD(t, func(string, string, int) error { return nil })
	s := quick(pgtest.URL(t), server.address)
	one, other := launch(t, s), launch(t, s) // both make the tables and the queue
	const orders = 20
	for i := range orders {
		place(t, []*running{one, other}[i%2].base, fmt.Sprint(i))
	}
	for i := range orders {
		becomes(t, one.base, fmt.Sprint(i), "sent")
	}
	one.stop(t)
	other.stop(t)
	for i := range orders {
		if n := len(server.mails(recipient(fmt.Sprint(i)))); n != 1 {
			t.Errorf("the mail of order %d was sent %d times", i, n)
		}
	}
}

func TestATraceGoesFromTheRequestToTheSMTPServer(t *testing.T) {
	server := newSMTPD(t, func(string, string, int) error { return nil })
	spans := tracetest.NewInMemoryExporter()
	s := quick(pgtest.URL(t), server.address)
	s.spans = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	m := launch(t, s)
	place(t, m.base, "traced")
	becomes(t, m.base, "traced", "sent")
	m.stop(t) // all spans have ended
	byName := map[string]tracetest.SpanStub{}
	for _, span := range spans.GetSpans() {
		byName[span.Name] = span
	}
	asked, published, worked, sent := byName["PUT /orders/{number}"], byName["publish "+queue], byName["work "+queue], byName["send mail"]
	if !asked.SpanContext.IsValid() || published.Parent.SpanID() != asked.SpanContext.SpanID() {
		t.Errorf("the request is span %v, and the message was enqueued in span %v", asked.SpanContext.SpanID(), published.Parent.SpanID())
	}
	if len(worked.Links) != 1 || worked.Links[0].SpanContext.SpanID() != published.SpanContext.SpanID() {
		t.Errorf("the worker's span is linked to %v, and the message was enqueued in %v", worked.Links, published.SpanContext.SpanID())
	}
	if !worked.SpanContext.IsValid() || sent.Parent.SpanID() != worked.SpanContext.SpanID() {
		t.Errorf("the worker's span is %v, and the mail was sent in %v", worked.SpanContext.SpanID(), sent.Parent.SpanID())
	}
}

func TestRequestsAreChecked(t *testing.T) {
	server := newSMTPD(t, func(string, string, int) error { return nil })
	m := launch(t, quick(pgtest.URL(t), server.address))
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"PUT", "/orders/1", `{"item": "two teapots", "email": "a@example.org"}`, 201},
		{"PUT", "/orders/1", `{"item": "two teapots", "email": "a@example.org"}`, 200}, // it is asked again
		{"PUT", "/orders/1", `{"item": "a kettle", "email": "a@example.org"}`, 409},
		{"PUT", "/orders/2", `two teapots`, 400},
		{"PUT", "/orders/2", `{"item": "", "email": "a@example.org"}`, 400},
		{"PUT", "/orders/2", `{"item": "two\u0000teapots", "email": "a@example.org"}`, 400},
		{"PUT", "/orders/2", `{"item": "two teapots", "email": "nobody"}`, 400},
		{"PUT", "/orders/2", `{"item": "two teapots", "email": "a@example.org\r\nBcc: b@example.org"}`, 400},
		{"PUT", "/orders/2", `{"item": "two teapots", "email": "a@example.org, b@example.org"}`, 400},
		{"PUT", "/orders/%00", `{"item": "two teapots", "email": "a@example.org"}`, 400},
		{"PUT", "/orders/2", `{"item": "` + strings.Repeat("a", orderBytes) + `"}`, 400},
		{"GET", "/orders/1", ``, 200},
		{"GET", "/orders/2", ``, 404},
		{"GET", "/orders/%00", ``, 404},
		{"GET", "/healthz", ``, 200},
	} {
		status, text, err := request(t.Context(), c.method, m.base+c.path, c.body)
		if err != nil || status != c.want {
			t.Errorf("%s %s %.80s: %d %s, %v; want %d", c.method, c.path, c.body, status, text, err, c.want)
		}
	}
	m.stop(t)
}

func TestWhatCannotWorkIsSaidAtTheStart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), listener, quick("postgres://nobody@127.0.0.1:1/none", "127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("without a database the mailer ends with: %v", err)
	}
	if err := start(settings{}, "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("without flags it ends with: %v", err)
	}
}
