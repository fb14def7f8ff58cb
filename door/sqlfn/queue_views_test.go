package sqlfn_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

func TestViewsShowQueuesAndTheirMessages(t *testing.T) {
	for name, settings := range map[string]queue.Settings{
		"a state for each partition": {Lease: time.Hour, Priorities: 2},
		"one state":                  {Lease: time.Hour, Priorities: 2, Concurrency: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			p, q := startQueuesWith(t, address, true, settings)
			reader := connect(t, login(t, address, "weir_reader"))
			show := func(sql string) (lines string) {
				t.Helper()
				rows, err := reader.Query(t.Context(), `SELECT x::text FROM (`+sql+`) AS x`)
				if err != nil {
					t.Fatal(err)
				}
				for rows.Next() {
					var line string
					if err := rows.Scan(&line); err != nil {
						t.Fatal(err)
					}
					lines += line + "\n"
				}
				if rows.Err() != nil {
					t.Fatal(rows.Err())
				}
				return lines
			}
			const counts = `SELECT queue, topic, paused, ready, claimed, waiting, dead FROM weir.queues`
			if got, want := show(counts), "(mail,mail,f,0,0,0,0)\n"; got != want {
				t.Errorf("at first %s, want %s", got, want)
			}
			var claimed []queue.Message
			for n := range 6 {
				if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: fmt.Append(nil, n), Priority: n / 5}); err != nil {
					t.Fatal(err)
				}
			}
			for range 5 {
				got, err := q.Claim(t.Context(), queue.Claim{Worker: "w", Wait: 10 * time.Second})
				if err != nil || len(got) != 1 {
					t.Fatal(got, err)
				}
				claimed = append(claimed, got[0])
			}
			if _, err := q.Ack(t.Context(), claimed[0].Receipt); err != nil {
				t.Fatal(err)
			}
			nack(t, q, queue.Nack{Error: "refused", SetDelay: true, Delay: 50 * time.Second}, claimed[1].Receipt)
			nack(t, q, queue.Nack{Error: "never", Reject: true}, claimed[2].Receipt)
			nack(t, q, queue.Nack{SetDelay: true}, claimed[3].Receipt)
			await(t, address, `SELECT ready = 2 FROM weir.queues`) // the store's time is known to a few milliseconds: the delay of none ends
			if got, want := show(counts), "(mail,mail,f,2,1,1,1)\n"; got != want {
				t.Errorf("then %s, want %s", got, want)
			}
			want, err := q.Stats(t.Context())
			if err != nil || want.Ready != 2 || want.Claimed != 1 || want.Waiting != 1 || want.Dead != 1 {
				t.Errorf("the queue counts %+v, %v", want, err)
			}
			got := show(fmt.Sprintf(`SELECT state, attempt, until > clock_timestamp() AS later, worker, error FROM weir.messages WHERE id IN ('%s', '%s', '%s') ORDER BY state`, claimed[1].ID, claimed[3].ID, claimed[4].ID))
			if want := "(claimed,1,t,w,)\n(ready,1,,,)\n(waiting,1,t,,refused)\n"; got != want {
				t.Errorf("the messages are\n%swant\n%s", got, want)
			}
			if got, want := show(`SELECT count(*), count(*) FILTER (WHERE state = 'ready' AND attempt = 0) FROM weir.messages WHERE queue = 'mail'`), "(4,1)\n"; got != want {
				t.Errorf("the view has %s, want %s", got, want)
			}
			topic, err := p.log.Topic(t.Context(), "mail")
			if err != nil {
				t.Fatal(err)
			}
			if err := p.log.Trim(t.Context(), topic.Partitions[0], 5); err != nil {
				t.Fatal(err)
			}
			if _, err := reader.Exec(t.Context(), `SELECT * FROM weir.queue_parts`); stateOf(err) != denied {
				t.Errorf("of the view beneath: %v, want %s", err, denied)
			}
			stats, err := q.Stats(t.Context())
			if got, want := show(counts), fmt.Sprintf("(mail,mail,f,%d,%d,%d,1)\n", stats.Ready, stats.Claimed, stats.Waiting); err != nil || got != want {
				t.Errorf("after retention deleted some: %s, want %s", got, want)
			}
		})
	}
}

// asOlder writes the states of queues as versions did that wrote an object for each run.
const asOlder = `UPDATE weir.state s SET value = convert_to((SELECT (v - 'texts' || jsonb_build_object('parts', (
		SELECT jsonb_agg(p || jsonb_build_object('runs', (
			SELECT coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object('n', r.n, 'fate', r.fate, 'attempt', nullif(r.attempt, 0), 'until', nullif(r.until, 0),
				'nonce', ('x' || r.nonce)::bit(32)::bigint, 'worker', r.worker, 'reason', r.reason)) ORDER BY r.upto), '[]')
			FROM weir.queue_runs((p ->> 'floor')::bigint, (p -> 'runs')::json, (v -> 'texts')::json) AS r)))
		FROM jsonb_array_elements(v -> 'parts') AS p)))::text
	FROM (SELECT convert_from(s.value, 'UTF8')::jsonb AS v) AS x), 'UTF8')
	WHERE s.key LIKE 'queue/state/%' OR s.key LIKE 'queue/dead/%'`

func TestStatesOfOlderVersionsAreShownAndAcknowledged(t *testing.T) {
	for name, settings := range map[string]queue.Settings{
		"a state for each partition": {Lease: time.Hour},
		"one state":                  {Lease: time.Hour, Concurrency: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			_, q := startQueuesWith(t, address, true, settings)
			var claimed []queue.Message
			for n := range 8 {
				if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: fmt.Append(nil, n)}); err != nil {
					t.Fatal(err)
				}
			}
			for n := range 6 {
				got, err := q.Claim(t.Context(), queue.Claim{Worker: fmt.Sprintf("w%d é", n/2), Wait: 10 * time.Second})
				if err != nil || len(got) != 1 {
					t.Fatal(got, err)
				}
				claimed = append(claimed, got[0])
			}
			if _, err := q.Ack(t.Context(), claimed[1].Receipt); err != nil {
				t.Fatal(err)
			}
			nack(t, q, queue.Nack{Error: "refused", SetDelay: true, Delay: 50 * time.Second}, claimed[2].Receipt)
			nack(t, q, queue.Nack{Error: "never", Reject: true}, claimed[3].Receipt)
			const all = `SELECT string_agg(x::text, E'\n') FROM (SELECT * FROM weir.queues) AS x`
			const each = `SELECT string_agg(x::text, E'\n' ORDER BY "offset") FROM (SELECT * FROM weir.messages) AS x`
			counts, messages := pgtest.Value(t, address, all), pgtest.Value(t, address, each)
			pgtest.Exec(t, address, asOlder)
			if n := pgtest.Value(t, address, `SELECT count(*) FROM weir.state WHERE key LIKE 'queue/state/%' AND convert_from(value, 'UTF8') LIKE '%"fate"%'`); n != "1" {
				t.Fatalf("%s states are as an older version writes them", n)
			}
			if got := pgtest.Value(t, address, all); got != counts {
				t.Errorf("the queue is %s, want %s", got, counts)
			}
			if got := pgtest.Value(t, address, each); got != messages {
				t.Errorf("the messages are\n%s\nwant\n%s", got, messages)
			}
			conn := connect(t, address)
			for n, m := range claimed {
				var said string
				_, err := conn.Exec(t.Context(), `SELECT weir.ack($1)`, m.Receipt)
				if said = stateOf(err); n == 0 && err != nil || n >= 1 && n <= 3 && said != "WE008" || n > 3 && err != nil {
					t.Errorf("ack of message %d: %v", n, err)
				}
			}
			await(t, address, `SELECT claimed = 0 FROM weir.queues`) // by the process that reads the older states, and writes new ones
			_, other := startQueuesWith(t, address, false, settings)
			for range 2 {
				if got := claim(t, other); string(got.Value) != "6" && string(got.Value) != "7" {
					t.Errorf("then %q is claimed", got.Value)
				}
			}
		})
	}
}

// Not all values of weir.state are JSON, and whoever may enqueue chooses how many there are: the
// views parse none but those that they show, whatever the plan.
func TestViewsOfQueuesParseNothingElse(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Unique: true})
	for n := range 3 {
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("v"), Unique: fmt.Sprint("key ", n)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, statistics := range []string{"none", "ANALYZE weir.state"} {
		if statistics != "none" {
			pgtest.Exec(t, address, statistics)
		}
		for _, off := range []string{"enable_hashjoin", "enable_indexscan, enable_bitmapscan, enable_indexonlyscan", "enable_nestloop", "enable_mergejoin, enable_hashjoin", "enable_seqscan"} {
			reader := connect(t, login(t, address, "weir_reader"))
			for name := range strings.SplitSeq(off, ", ") {
				exec(t, reader, `SELECT set_config($1, 'off', false)`, name)
			}
			for _, sql := range []string{
				`SELECT count(*) FROM weir.messages`, `SELECT count(*) FROM weir.messages WHERE queue = 'mail'`, `SELECT sum(ready + dead) FROM weir.queues`,
			} {
				var n int
				if err := reader.QueryRow(t.Context(), sql).Scan(&n); err != nil || n != 3 {
					t.Errorf("%s, statistics %s, without %s: %d, %v, want 3", sql, statistics, off, n, err)
				}
			}
		}
	}
}
