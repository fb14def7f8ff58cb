package sqlfn_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/queue"
)

// number calls a function that enqueues a message and returns its id.
func number(t *testing.T, conn *pgx.Conn, call string, args ...any) (id int64) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT weir.enqueue_id(`+call+`)`, args...).Scan(&id); err != nil {
		t.Fatal(call, err)
	}
	return id
}

// messageState asks SQL and Go what became of a message. They must say the same. It returns the
// state, the number of attempts, the error and the worker, and "until" if it waits for a time.
func messageState(t *testing.T, conn *pgx.Conn, q *queue.Queue, id int64) (told string) {
	t.Helper()
	var state string
	var message, reason, worker *string
	var attempts *int
	var until *time.Time
	for { // until nothing happened between the two answers
		before, err := q.FindEnqueued(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), `SELECT state, attempts, error, worker, until, message FROM weir.message_state($1, $2)`, q.Info().Name, id).
			Scan(&state, &attempts, &reason, &worker, &until, &message); err != nil {
			t.Fatal(err)
		}
		c, err := q.FindEnqueued(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if before.State != c.State {
			continue
		}
		if c.State != state {
			t.Fatalf("message %d is %s in SQL, and %s in Go", id, state, c.State)
		}
		if state != queue.Sent && state != queue.Unknown && (message == nil || *message != c.ID.String()) {
			t.Fatalf("message %d is %v in SQL, and %v in Go", id, message, c.ID)
		}
		break
	}
	told = state
	if attempts != nil {
		told += fmt.Sprint(" ", *attempts)
	}
	for _, text := range []*string{reason, worker} {
		if text != nil && *text != "" {
			told += " " + *text
		}
	}
	if until != nil {
		told += " until"
	}
	return told
}

// comesTo waits until a message is in a state.
func comesTo(t *testing.T, conn *pgx.Conn, q *queue.Queue, id int64, want string) {
	t.Helper()
	told := ""
	for end := time.Now().Add(30 * time.Second); ; {
		if told = messageState(t, conn, q, id); told == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("message %d is %q, want %q", id, told, want)
		}
	}
}

func TestAnIDOfAMessageSaysWhatBecameOfIt(t *testing.T) {
	address := pgtest.URL(t)
	settings := queue.Settings{Lease: time.Hour, Unique: true, Attempts: 2, Priorities: 2}
	_, q := startQueuesWith(t, address, false, settings)
	conn := connect(t, address)
	exec(t, conn, `BEGIN`)
	undone := number(t, conn, `'mail', 'undone'`)
	exec(t, conn, `ROLLBACK; BEGIN`)
	open := number(t, conn, `'mail', 'v'`)
	other := connect(t, address)
	comesTo(t, other, q, open, "unknown")
	exec(t, conn, `COMMIT`)
	comesTo(t, conn, q, open, "sent 0")

	_, q = startQueuesWith(t, address, true, settings)
	comesTo(t, conn, q, undone, "unknown")
	comesTo(t, conn, q, open, "ready 0")
	comesTo(t, conn, q, 1<<40, "unknown")
	m := claim(t, q)
	comesTo(t, conn, q, open, "claimed 1 until")
	nack(t, q, queue.Nack{Error: "no route", SetDelay: true, Delay: time.Minute}, m.Receipt)
	comesTo(t, conn, q, open, "waiting 1 no route until")

	urgent := number(t, conn, `'mail', 'urgent', 'key', priority => 1, headers => '{"a": "b"}'`)
	comesTo(t, conn, q, urgent, "ready 0")
	m = claim(t, q)
	ack(t, q, m)
	comesTo(t, conn, q, urgent, "done")

	dead := number(t, conn, `'mail', 'dead'`)
	m = claim(t, q)
	nack(t, q, queue.Nack{Error: `\x41 is wrong`, Reject: true}, m.Receipt)
	comesTo(t, conn, q, dead, `dead 1 \x41 is wrong`)
	redrive(t, q, "dead")
	comesTo(t, conn, q, dead, "ready 0")
	m = claim(t, q)
	comesTo(t, conn, q, dead, "claimed 1 until")
	ack(t, q, m)
	comesTo(t, conn, q, dead, "done")

	// A message that waits for more than a minute is in the wheel.
	long := number(t, conn, `'mail', 'long'`)
	m = claim(t, q)
	nack(t, q, queue.Nack{Error: "later", SetDelay: true, Delay: time.Hour}, m.Receipt)
	comesTo(t, conn, q, long, "delayed 1 until")
	// So is one that came out of the wheel before, or back from the dead letters.
	returned := number(t, conn, `'mail', 'returned', delay => '200 milliseconds'`)
	m = claim(t, q)
	nack(t, q, queue.Nack{Error: "later", SetDelay: true, Delay: time.Hour}, m.Receipt)
	comesTo(t, conn, q, returned, "delayed 1 until")
	redriven := number(t, conn, `'mail', 'redriven'`)
	m = claim(t, q)
	nack(t, q, queue.Nack{Error: "wrong", Reject: true}, m.Receipt)
	redrive(t, q, "redriven")
	m = claim(t, q)
	nack(t, q, queue.Nack{Error: "later", SetDelay: true, Delay: time.Hour}, m.Receipt)
	comesTo(t, conn, q, redriven, "delayed 1 until")

	delayed := number(t, conn, `'mail', 'delayed', delay => '1 hour', unique_key => 'u'`)
	comesTo(t, conn, q, delayed, "delayed 0 until")
	exec(t, conn, `BEGIN`)
	twice := []int64{number(t, conn, `'mail', 'twice', delay => '1 hour', unique_key => 'v'`), number(t, conn, `'mail', 'twice', delay => '1 hour', unique_key => 'v'`)}
	exec(t, conn, `COMMIT`)
	for _, id := range twice {
		comesTo(t, conn, q, id, "delayed 0 until")
	}
	again := number(t, conn, `'mail', 'again', unique_key => 'u'`)
	comesTo(t, conn, q, again, "delayed 0 until")
	if got := pgtest.Value(t, address, fmt.Sprintf(`SELECT (a.message = b.message)::text FROM weir.message_state('mail', %d) AS a, weir.message_state('mail', %d) AS b`, delayed, again)); got != "true" {
		t.Error("a message that was dropped because of its unique key is not the one that has the key")
	}
	soon := number(t, conn, `'mail', 'soon', delay => '200 milliseconds'`)
	m = claim(t, q)
	if string(m.Value) != "soon" {
		t.Fatalf("claimed %q", m.Value)
	}
	comesTo(t, conn, q, soon, "claimed 1 until")
	ack(t, q, m)
	comesTo(t, conn, q, soon, "done")

	if _, err := conn.Exec(t.Context(), `SELECT weir.message_state('mail', NULL)`); stateOf(err) != "22004" {
		t.Errorf("the state of no message: %v", err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT weir.message_state('none', 1)`); stateOf(err) != "WE007" {
		t.Errorf("the state of a message of no queue: %v", err)
	}
}

// An older weir named the queue twice in a record that it put off again.
func TestAMessageThatAnOlderWeirPutOffAgainIsDelayed(t *testing.T) {
	address := pgtest.URL(t)
	p, q := startQueues(t, address, true)
	conn := connect(t, address)
	id := number(t, conn, `'mail', 'put off'`)
	m := claim(t, q)
	ack(t, q, m)
	comesTo(t, conn, q, id, "done")
	other := number(t, conn, `'mail', 'delayed', delay => '1 hour'`) // this makes the topic
	comesTo(t, conn, q, other, "delayed 0 until")
	wheel, err := p.log.Topic(t.Context(), "__weir_later")
	if err != nil {
		t.Fatal(err)
	}
	to := batch.RecordHeader{Key: "weir.queue.to", Value: []byte("mail/" + q.Info().ID)}
	due := time.Now().Add(30 * 24 * time.Hour).UnixMilli() // long after the slot is read again, so that it stays there
	b, err := wheel.Seal(wheel.Partitions[2*64], []batch.Record{{Value: []byte("put off"), Timestamp: time.Now().UnixMilli(), Headers: []batch.RecordHeader{
		to, {Key: "weir.queue.tried", Value: []byte("1")}, {Key: "weir.queue.id", Value: []byte(m.ID.String())}, to, {Key: "weir.queue.due", Value: strconv.AppendInt(nil, due, 10)}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{b}}); err != nil {
		t.Fatal(err)
	}
	comesTo(t, conn, q, id, "delayed 1 until")
}

// What is enqueued under an id is found under it, whoever enqueues beside it, and to whichever
// partition it goes. A message of another queue is none of this one.
func TestManyIDsLeadToTheirMessages(t *testing.T) {
	address := pgtest.URL(t)
	rng := seed.Random(t)
	startQueue(t, address, true, queue.Spec{Name: "mail", Partitions: 3, Settings: queue.Settings{Unique: true}})
	_, others := startQueue(t, address, false, queue.Spec{Name: "post", Partitions: 1})
	conns := []*pgx.Conn{connect(t, address), connect(t, address), connect(t, address)}
	want := make(map[int64]string)
	for n := range 300 {
		conn := conns[rng.IntN(len(conns))]
		value := fmt.Sprintf("message %d", n)
		switch rng.IntN(7) {
		case 0:
			exec(t, conn, `SELECT weir.enqueue('mail', 'without id')`)
		case 1:
			want[number(t, conn, `'mail', $1, $2`, value, fmt.Sprint(rng.IntN(20)))] = value
		case 2:
			want[number(t, conn, `'mail', $1::jsonb, unique_key => $2`, `{"n": `+fmt.Sprint(n)+`}`, fmt.Sprint(n))] = `{"n": ` + fmt.Sprint(n) + `}`
		case 3:
			want[number(t, conn, `'mail', $1::bytea, headers => '{"a": "b"}'`, []byte(value))] = value
		case 4:
			want[number(t, conn, `'mail', $1, delay => '1 hour'`, value)] = value
		default:
			var ids []int64
			keys := `NULL`
			if rng.IntN(2) == 0 {
				keys = `ARRAY['a', 'b', NULL]`
			}
			if err := conn.QueryRow(t.Context(), `SELECT weir.enqueue_all_ids('mail', `+keys+`, ARRAY[$1 || ' a', $1 || ' b', $1 || ' c'])`, value).Scan(&ids); err != nil || len(ids) != 3 {
				t.Fatal(ids, err)
			}
			for i, id := range ids {
				want[id] = value + " " + string(rune('a'+i))
			}
		}
	}
	eventually(t, "all are moved", func() bool { return pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`) == "0" })
	for id, value := range want {
		var got string
		if err := conns[0].QueryRow(t.Context(), `
			SELECT e.value_text FROM weir.message_state('mail', $1) AS m
			JOIN weir.partition AS p ON p.id = split_part(m.message, '-', 1)::bigint
			CROSS JOIN LATERAL weir.span_events(0, p.id, split_part(m.message, '-', 2)::bigint, split_part(m.message, '-', 2)::bigint + 1) AS e
			ORDER BY p.turn DESC LIMIT 1`, id).Scan(&got); err != nil || got != value {
			t.Fatalf("message %d is %q, want %q (%v)", id, got, value, err)
		}
		if told := messageState(t, conns[0], others, id); told != "unknown" {
			t.Fatalf("message %d of queue mail is %q in queue post", id, told)
		}
	}
	if runs := pgtest.Value(t, address, `SELECT count(*) FROM weir.enqueued`); runs == fmt.Sprint(len(want)) {
		t.Errorf("there is a row for each of %s messages: runs are not one row", runs)
	}
	exec(t, conns[0], `SELECT weir.enqueue_all_ids('mail', NULL, '{}'::text[])`)
}

// The places of messages go with the messages' records, but not before a week has passed.
func TestPlacesOfMessagesGoWithTheirRecords(t *testing.T) {
	address := pgtest.URL(t)
	p, q := startQueues(t, address, true)
	conn := connect(t, address)
	gone, stays := number(t, conn, `'mail', 'gone'`), number(t, conn, `'mail', 'stays'`)
	comesTo(t, conn, q, stays, "ready 0")
	for range 2 {
		ack(t, q, claim(t, q))
	}
	at, err := queue.ParseID(pgtest.Value(t, address, fmt.Sprintf(`SELECT message FROM weir.message_state('mail', %d)`, stays)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Trim(t.Context(), []eventlog.Trim{{Partition: at.Partition, Before: at.Offset}}); err != nil {
		t.Fatal(err)
	}
	forget := func(want string) {
		t.Helper()
		if got := pgtest.Value(t, address, `SELECT weir.forget_enqueued(1000)`); got != want {
			t.Errorf("%s places are forgotten, want %s", got, want)
		}
	}
	forget("0")
	comesTo(t, conn, q, gone, "done")
	exec(t, conn, `UPDATE weir.enqueued SET kept_until = now() - interval '1 s'`)
	places := pgtest.Value(t, address, `SELECT string_agg(last - first + 1 || '', ' ') FROM weir.enqueued`)
	if strings.Contains(places, "2") { // one run: its last record is there
		forget("0")
	} else {
		forget("1")
		comesTo(t, conn, q, gone, "unknown")
	}
	comesTo(t, conn, q, stays, "done")
}

func ack(t *testing.T, q *queue.Queue, m queue.Message) {
	t.Helper()
	if errs, err := q.Ack(t.Context(), m.Receipt); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
}

// redrive redrives the dead letter with a value.
func redrive(t *testing.T, q *queue.Queue, value string) {
	t.Helper()
	letters, err := q.DeadLetters(context.Background(), queue.MessageID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		if string(l.Value) == value {
			if n, err := q.Redrive(t.Context(), l); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			return
		}
	}
	t.Fatalf("no letter %q among %d", value, len(letters))
}
