package sqlfn_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/queue"
)

// creations returns the state of each request, and what was refused why.
func creations(t *testing.T, address string) string {
	t.Helper()
	return pgtest.Value(t, address, `SELECT coalesce(string_agg(concat_ws(' ', kind, name, state, reason), E'\n' ORDER BY id), 'none') FROM weir.creations`)
}

// A migration creates what the code needs, and uses it at once, while no weir runs.
func TestAMigrationCreatesTopicsAndQueuesAndPublishesToThem(t *testing.T) {
	address := pgtest.URL(t)
	open(t, address).store.Close() // installs the functions
	conn := connect(t, login(t, address, "weir_creator", "weir_producer"))
	exec(t, conn, `BEGIN; SELECT weir.create_topic('never'), weir.publish('never', 'k', 'v'); ROLLBACK`)
	if _, err := conn.Exec(t.Context(), `SELECT weir.publish('never', 'k', 'v')`); stateOf(err) != "WE001" {
		t.Errorf("publish to a topic whose creation was rolled back: %v", err)
	}
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT weir.create_topic('orders', 3, '{"retention.ms": 86400000}')`)
	exec(t, conn, `SELECT weir.create_queue('mail', settings => '{"attempts": 5, "unique": true, "priorities": 2, "delays_ms": [1000, 2000]}')`)
	exec(t, conn, `SELECT weir.create_queue('post', topic => 'parcels', partitions => 2), weir.create_category('account')`)
	exec(t, conn, `SELECT weir.publish('orders', NULL, 'to 2', partition => 2), weir.publish_all('orders', ARRAY['a', 'b'], ARRAY['1', '2'])`)
	if _, err := connect(t, address).Exec(t.Context(), `SELECT weir.publish('orders', 'k', 'v')`); stateOf(err) != "WE001" {
		t.Errorf("another transaction publishes to a topic whose creation is not committed: %v", err)
	}
	exec(t, conn, `SELECT weir.enqueue('mail', 'plain'), weir.enqueue('mail', 'urgent', priority => 1), weir.enqueue('mail', 'once', unique_key => 'u'), weir.enqueue('mail', 'once', unique_key => 'u'),
		weir.enqueue('mail', 'later', delay => '1 hour'), weir.enqueue_all('mail', NULL, ARRAY['all']), weir.enqueue('post', 'parcel')`)
	id := number(t, conn, `'mail', 'with id'`)
	exec(t, conn, `COMMIT`)
	exec(t, conn, `SELECT weir.publish('orders', 'c', '3')`)
	if state := pgtest.Value(t, address, `SELECT state FROM weir.message_state('mail', (SELECT max(id) FROM weir.inbox WHERE base IS NOT NULL))`); state != "sent" {
		t.Errorf("a message for a queue that is to be created is %s", state)
	}

	p, _ := startQueue(t, address, true, queue.Spec{Name: "other"})
	eventually(t, "all is created and moved", func() bool { return pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`) == "0" })
	_, q := startQueue(t, address, false, queue.Spec{Name: "mail"})
	if got, want := creations(t, address), "topic orders done\nqueue mail done\nqueue post done\ncategory account done"; got != want {
		t.Errorf("creations:\n%s", got)
	}
	topic, err := p.log.Topic(t.Context(), "orders")
	if err != nil || len(topic.Partitions) != 3 || topic.Config["retention.ms"] != "86400000" {
		t.Errorf("topic %+v, %v", topic, err)
	}
	if got := values(p.read("orders", 4)); len(got) != 4 {
		t.Errorf("events %q", got)
	}
	info, err := q.Now(t.Context())
	if err != nil || info.Settings.Attempts != 5 || !info.Settings.Unique || info.Settings.Priorities != 2 || !slices.Equal(info.Settings.Delays, []time.Duration{time.Second, 2 * time.Second}) {
		t.Errorf("queue %+v, %v", info, err)
	}
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Ready != 5 || stats.Delayed != 1 {
		t.Errorf("the queue has %+v, %v", stats, err)
	}
	comesTo(t, connect(t, address), q, id, "ready 0")
	exec(t, conn, `SELECT weir.append('account', '1', 'none', 'Opened', '{}')`)

	// What is there as it is asked for may be asked for again.
	exec(t, conn, `SELECT weir.create_topic('orders'), weir.create_topic('orders', 3, '{"retention.ms": "86400000"}'), weir.create_queue('mail', 'mail', settings => '{"unique": true, "attempts": 5}'),
		weir.create_category('account', 4)`)
	eventually(t, "the requests are done", func() bool { return strings.Count(creations(t, address), " done") == 8 })
	for sql, says := range map[string]string{
		`SELECT weir.create_topic('orders', 4)`:                                 `topic "orders" exists, and its number of partitions is 3, not 4`,
		`SELECT weir.create_topic('orders', settings => '{"retention.ms": 1}')`: `topic "orders" exists, and its retention.ms is 86400000, not 1`,
		`SELECT weir.create_queue('mail', 'other')`:                             `queue "mail" exists, and its topic is mail, not other`,
		`SELECT weir.create_queue('mail', settings => '{"attempts": 6}')`:       `queue "mail" exists, and its attempts is 5, not 6`,
		`SELECT weir.create_queue('mail', settings => '{"key_order": true}')`:   `queue "mail" exists, and its key_order is false, not true`,
		`SELECT weir.create_category('account', 5)`:                             `category "account" exists, and its number of partitions is 4, not 5`,
	} {
		if _, err := conn.Exec(t.Context(), sql); stateOf(err) != "WE016" || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for sql, state := range map[string]string{
		`SELECT weir.create_topic(NULL)`:                         "22004",
		`SELECT weir.create_topic('a b')`:                        "22023",
		`SELECT weir.create_queue('..')`:                         "22023",
		`SELECT weir.create_topic('x', 0)`:                       "22023",
		`SELECT weir.create_queue('x', settings => '[1]')`:       "22023",
		`SELECT weir.create_topic('__weir_x')`:                   "WE009",
		`SELECT weir.create_queue('x', topic => '__weir_later')`: "WE009",
	} {
		if _, err := conn.Exec(t.Context(), sql); stateOf(err) != state {
			t.Errorf("%s: %v, want %s", sql, err, state)
		}
	}
}

// What cannot be created is refused for a reason. What was published to it stays until somebody
// creates it.
func TestWhatIsRefusedSaysWhyAndKeepsItsEvents(t *testing.T) {
	address := pgtest.URL(t)
	p, _ := startQueues(t, address, true)
	p.create("plain", 1, nil)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.create_topic('plain', settings => '{"retention.ms": "5"}')`)
	exec(t, conn, `SELECT weir.create_queue('mail', settings => '{"lease_ms": 1000}'), weir.create_queue('odd', settings => '{"no_such": 1}'), weir.create_category('plain')`)
	exec(t, conn, `BEGIN; SELECT weir.create_topic('wrong', 1, '{"no.such": "1"}'), weir.publish('wrong', 'k', 'kept'); SELECT weir.publish('plain', 'k', 'others go on'); COMMIT`)
	eventually(t, "all requests ended", func() bool { return !strings.Contains(creations(t, address), "waiting") })
	want := []string{"topic plain refused", "retention.ms=604800000, but 5", "queue mail refused", "Lease 1h0m0s, but 1s", "queue odd refused", "no_such", "category plain refused", "topic wrong refused", "no.such"}
	for _, text := range want {
		if got := creations(t, address); !strings.Contains(got, text) {
			t.Errorf("no %q in\n%s", text, got)
		}
	}
	if got := values(p.read("plain", 1)); !slices.Equal(got, []string{"others go on"}) {
		t.Errorf("events %q", got)
	}
	if n := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`); n != "1" {
		t.Fatalf("%s rows wait, want the event for the topic that was not created", n)
	}
	if _, err := conn.Exec(t.Context(), `SELECT weir.publish('wrong', 'k', 'v')`); stateOf(err) != "WE001" {
		t.Errorf("publish to a topic whose creation was refused: %v", err)
	}
	p.create("wrong", 1, nil)
	startQueues(t, address, true) // another process tries at once
	if got := values(p.read("wrong", 1)); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("events %q", got)
	}
}

// Messages that were enqueued with a request for their queue stay if that is refused.
func TestMessagesOfAQueueThatIsRefusedStay(t *testing.T) {
	address := pgtest.URL(t)
	p, _ := startQueues(t, address, true)
	p.create("orders", 1, nil)
	conn := connect(t, address)
	exec(t, conn, `BEGIN; SELECT weir.create_queue('jobs', topic => 'orders', settings => '{"unique": true, "lease_ms": 5}');
		SELECT weir.enqueue('jobs', '1'::jsonb, unique_key => 'a'); SELECT weir.enqueue('jobs', '2'::jsonb, delay => '1 hour'); COMMIT`)
	eventually(t, "the request ended", func() bool { return strings.Contains(creations(t, address), "queue jobs refused") })
	exec(t, conn, `SELECT weir.publish('orders', 'k', 'others go on')`)
	if got := values(p.read("orders", 1)); !slices.Equal(got, []string{"others go on"}) {
		t.Errorf("events %q", got)
	}
	if n := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`); n != "2" {
		t.Errorf("%s rows wait, want both messages", n)
	}
}

// A record that was published for a topic that SQL asked for does not come into one that has a
// writer of its own.
func TestNobodyForgesEventsByAskingForACategorysTopicFirst(t *testing.T) {
	address := pgtest.URL(t)
	startQueues(t, address, true)
	conn := connect(t, address)
	if _, err := conn.Exec(t.Context(), `SELECT weir.create_topic('weir.audit')`); stateOf(err) != "WE009" {
		t.Errorf("the audit's topic: %v", err)
	}
	exec(t, conn, `BEGIN; SELECT weir.create_topic('acct', 1, '{"no.such": "1"}'), weir.publish('acct', 'k', 'forged', headers => '{"weir.stream.version": "0"}'); COMMIT`)
	eventually(t, "the request ended", func() bool { return strings.Contains(creations(t, address), "topic acct refused") })
	exec(t, conn, `SELECT weir.create_category('acct', 1)`)
	eventually(t, "the category is there", func() bool { return strings.Contains(creations(t, address), "category acct done") })
	q, _ := startQueues(t, address, true) // another process tries at once
	exec(t, conn, `BEGIN; SELECT weir.create_topic('later', 1), weir.publish('later', 'k', 'came'); COMMIT`)
	eventually(t, "the topic is there", func() bool { return strings.Contains(creations(t, address), "topic later done") })
	check(t, q.log.RefreshTopics(t.Context()))
	if got := values(q.read("later", 1)); !slices.Equal(got, []string{"came"}) {
		t.Errorf("events %q", got)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`); got != "1" {
		t.Errorf("%s rows wait, want the forged one", got)
	}
}

// A mover that knows no requests would drop their rows: it cannot look.
func TestAMoverThatKnowsNoCreationsIsRefused(t *testing.T) {
	address := pgtest.URL(t)
	open(t, address).store.Close()
	_, err := connect(t, address).Exec(t.Context(), `SELECT id FROM weir.look('1:1:', 0, NULL, 0, 5000, 4 << 20, 200000, NULL, NULL)`)
	if stateOf(err) != "42883" {
		t.Errorf("a look of an older version: %v, want 42883", err)
	}
}

// What SQL creates is recorded with the role that asked for it, once for each thing that was not
// there.
func TestTheAuditSaysWhichRoleCreatedWhat(t *testing.T) {
	address := pgtest.URL(t)
	p := open(t, address)
	audit.New(p.log, false, slog.Default())
	p.runQueues(t, true)
	own := login(t, address, "weir_creator")
	conn := connect(t, own)
	exec(t, conn, `SELECT weir.create_topic('orders'), weir.create_queue('mail'), weir.create_category('account')`)
	exec(t, conn, `SELECT weir.create_topic('orders')`)
	eventually(t, "the requests are done", func() bool { return strings.Count(creations(t, address), " done") == 4 })
	role := pgtest.Value(t, own, `SELECT session_user`)
	var got []string
	for _, value := range values(p.read(audit.Topic, 6)) {
		e, err := audit.Parse([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		if e.Who.Type != audit.DatabaseRole || e.Who.Name != role || e.Who.Door != "sql" || e.Who.Address == "" {
			t.Errorf("%s of %q by %+v, want role %s", e.Verb, e.Object, e.Who, role)
		}
		got = append(got, string(e.Verb)+" "+e.Object)
	}
	slices.Sort(got)
	want := []string{"category.create account", "queue.create mail", "topic.create account", "topic.create mail", "topic.create mail.dlt", "topic.create orders"}
	if !slices.Equal(got, want) {
		t.Errorf("the audit has %q, want %q", got, want)
	}
}
