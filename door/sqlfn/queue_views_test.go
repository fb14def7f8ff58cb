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
