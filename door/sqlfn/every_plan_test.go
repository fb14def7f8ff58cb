package sqlfn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// The server logs the plan of every statement, also of those inside of functions, with the pages
// that it read. So a statement is held to this whether anybody thought of it here or not: a scan
// reads about as many pages as it finds rows, in tables that are large, whatever the statistics
// say. They are of the tables as they were when autoanalyze came by: empty, full, or emptied.
func TestNoStatementReadsMoreThanItFindsWhateverTheStatisticsSay(t *testing.T) {
	const (
		fill = `
			INSERT INTO weir.partition (id) SELECT generate_series(100001, 120000);
			INSERT INTO weir.state (key, version, put_at, value) SELECT 'filler ' || n, 1, now(), 'v' FROM generate_series(1, 40000) AS n;
			INSERT INTO weir.state (key, version, put_at, value)
			SELECT 'topic/filler' || n, 1, now(), convert_to(format('{"id":"%s","partitions":[%s]}', replace(gen_random_uuid()::text, '-', ''), 100000 + n), 'UTF8') FROM generate_series(1, 1500) AS n;
			INSERT INTO weir.acked SELECT 'filler', n, n FROM generate_series(1, 40000) AS n;
			INSERT INTO weir.held SELECT 'filler ' || n % 100, n FROM generate_series(1, 40000) AS n;
			INSERT INTO weir.appended (key, version, head, id, type, data, "time") SELECT 'filler ' || n % 100, n, n, 'i', 't', '', now() FROM generate_series(1, 40000) AS n;
			INSERT INTO weir.nacked SELECT 'filler', n, n, 'nack' FROM generate_series(1, 40000) AS n;
			INSERT INTO weir.run SELECT 100000 + n % 5000 + 1, n, n + 1, 0, 0, 0, 999 FROM generate_series(1, 40000) AS n;
			INSERT INTO weir.consumer (grp, topic, partition) SELECT 'filler ' || n, t.id, 0 FROM weir.topic t, generate_series(1, 8) AS n WHERE t.name LIKE 'filler%';
			INSERT INTO weir.consumed (consumer, next_offset, committed_at) SELECT id, 1, now() FROM weir.consumer WHERE grp LIKE 'filler%';
			INSERT INTO weir.inbox (xact, topic, value, size) SELECT pg_current_xact_id(), t.id, convert_to(repeat('x', 50), 'UTF8'), 200 FROM weir.topic t, generate_series(1, 30000) AS n
			WHERE t.name = 'orders';`
		empty = `
			DELETE FROM weir.partition WHERE id > 100000; DELETE FROM weir.state WHERE key LIKE '%filler%'; DELETE FROM weir.run WHERE partition_id > 100000;
			DELETE FROM weir.consumed x USING weir.consumer c WHERE c.id = x.consumer AND c.grp LIKE 'filler%'; DELETE FROM weir.consumer WHERE grp LIKE 'filler%';
			DELETE FROM weir.inbox WHERE size = 200; DELETE FROM weir.acked WHERE queue = 'filler'; DELETE FROM weir.nacked; DELETE FROM weir.held; DELETE FROM weir.appended;`
		analyze = `VACUUM ANALYZE`
	)
	for name, before := range map[string][]string{
		"empty":   {analyze, fill},
		"full":    {fill, analyze},
		"emptied": {fill, empty, analyze, fill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has a server of its own, and waits for it
			srv := pgtest.Start(t)
			settings := []string{
				`autovacuum = off`, `track_functions = 'all'`, `log_line_prefix = '%a|'`, `session_preload_libraries = 'auto_explain'`,
				`auto_explain.log_min_duration = 0`, `auto_explain.log_nested_statements = on`, `auto_explain.log_format = 'json'`,
				`auto_explain.log_analyze = on`, `auto_explain.log_buffers = on`, `auto_explain.log_timing = off`, `auto_explain.log_verbose = off`,
			}
			admin := session(t, srv.Admin())
			if _, err := admin.Exec(t.Context(), `LOAD 'auto_explain'`); err != nil {
				t.Skipf("this PostgreSQL has no auto_explain: %v", err)
			}
			for _, setting := range settings {
				run(t, admin, `ALTER SYSTEM SET `+setting)
			}
			run(t, admin, `SELECT pg_reload_conf()`)
			address := srv.URL()
			setup := address + "&application_name=setup"

			m := still(t, address+"&weir_segment_bytes=300000&weir_segment_age=1ms")
			topic, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range before {
				run(t, session(t, setup), step)
			}
			said := len(srv.Log())
			drive(t, m, session(t, address), address, topic)
			await(t, setup, `SELECT count(*) = 2 FROM pg_stat_user_functions WHERE funcname IN ('move_run', 'drop_segment') AND calls > 0`)
			m.door.store.Close()

			const uncalled = `
				SELECT coalesce(string_agg(p.proname, ' ' ORDER BY 1), '') FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
				WHERE p.pronamespace = 'weir'::regnamespace AND p.prorettype <> 'trigger'::regtype
				  AND NOT EXISTS (SELECT FROM pg_stat_user_functions f WHERE f.funcid = p.oid)
				  AND NOT starts_with(p.proname, 'write_')
				  AND NOT p.proname IN ('no_topic', 'refuse_other', 'too_large', 'set_rights', 'grant_to', 'lock_partition', 'long_varint', 'check_session',
				                    'damage_hint', 'damaged',
				                    'checksum_fits', 'is_codeword')` // one of these two, by the server's version; they read no table
			idle := pgtest.Value(t, setup, uncalled)
			for late := time.Now().Add(10 * time.Second); idle != "" && time.Now().Before(late); { // PostgreSQL 14 counts a while later
				idle = pgtest.Value(t, setup, uncalled)
			}
			if idle != "" {
				t.Errorf("nothing here calls %s, so nobody knows the plans of their statements: call them in drive", idle)
			}
			plans := explained(t, srv.Log()[said:])
			if len(plans) < 300 {
				t.Errorf("%d plans were logged: the test shows little", len(plans))
			}
			told := map[string]bool{}
			past := 0
			for _, p := range plans {
				p.Plan.each(func(n *node) {
					if strings.Contains(p.where, "function weir.look(") && n.Index == "inbox_pkey" && n.Rows == 0 && n.excess() != "" {
						past++ // the main lane goes past a backlog that has a lane of its own: in the round that finds it, and in the next
						return
					}
					if why := n.excess(); why != "" && wholes[p.where] == "" && !told[p.where+p.Query] {
						told[p.where+p.Query] = true
						t.Errorf("%s\nin %s\n%s", why, p.where, p.Query)
					}
				})
			}
			if past > 2 {
				t.Errorf("%d looks read a backlog to its end and found nothing, want at most 2", past)
			}
			t.Logf("%d plans, %d looks past a backlog", len(plans), past)
		})
	}
}

// wholes are functions that read a table whole, and why they may.
var wholes = map[string]string{
	"PL/pgSQL function weir.settle(integer) line 6 at FOR over SELECT rows":                             "once for each segment that is emptied it looks for the partitions that wrote there last",
	"PL/pgSQL function weir.roll(boolean,bigint,interval) line 19 at EXECUTE":                           "it reads a sample of the segment that it seals, and the pages are counted as those of weir.segment",
	"PL/pgSQL function weir.find_moved(bigint,bigint,text,text,boolean) line 7 at FOR over SELECT rows": "it searches the batches of a partition for a message that left its first place",
}

// drive has every statement sent that weir sends, and calls what sessions may.
func drive(t *testing.T, m *Mover, conn *pgx.Conn, address string, topic eventlog.Topic) {
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := topic.Partitions[0]
	carry := func(rounds int) {
		t.Helper()
		for range rounds {
			m.positions.carried = time.Time{}
			_, err := m.step(ctx)
			check(err)
		}
	}
	carry(20) // the 30,000 rows, and a round that finds none
	for _, sql := range []string{
		`SELECT weir.publish('orders', 'k', 'v', '{"a": "b"}', 1), weir.publish('orders', 'k', '{}'::jsonb), weir.publish('orders', 'k', '\x00ff'::bytea)`,
		`SELECT weir.publish('orders', repeat('k', 100), repeat('x', 500000), '{"a": null}'), weir.tombstone('orders', 'k')`,
		`SELECT weir.publish_all('orders', ARRAY['k', NULL], ARRAY['a', 'b'], '{"h": "v"}'), weir.publish_all('orders', NULL, ARRAY['{}'::jsonb])`,
	} {
		run(t, conn, sql)
		carry(2)
	}
	for range 20 {
		_, err := m.log.Publish(ctx, p, batch.Record{Key: []byte("k"), Value: make([]byte, 50_000), Headers: []batch.RecordHeader{{Key: "long", Value: make([]byte, 200)}}})
		check(err)
	}
	_, err := m.log.Publish(ctx, topic.Partitions[1], batch.Record{Value: make([]byte, 1000)})
	check(err)
	for from := range eventlog.Offset(10) {
		_, err = m.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1000}}, MaxBytes: 1000})
		check(err)
	}
	run(t, conn, `SELECT count(*) FROM weir.events('orders', 5, 0, 3); SELECT count(*) FROM weir.events('orders', 30000); SELECT count(*) FROM weir.last_events('orders', 2)`)
	driveReplace(t, m, p)
	_, err = m.log.Seek(ctx, []eventlog.Goal{{Partition: p, At: 1}})
	check(err)
	_, err = m.log.Seek(ctx, []eventlog.Goal{{Partition: p, Bytes: 100_000}})
	check(err)

	peer, err := group.New(m.log, group.Config{}).JoinPeer(ctx, group.PeerConfig{Group: "g", Topics: []string{"orders"}})
	check(err)
	for n := range 5 {
		run(t, conn, fmt.Sprintf(`SELECT weir.commit_offset('g', 'orders', 0, %d, %d, '%s', %d)`, n+1, n, peer.ID(), peer.Generation()))
		run(t, conn, fmt.Sprintf(`SELECT weir.commit_offset_by_id('h', (SELECT id FROM weir.topic WHERE name = 'orders'), 0, %d)`, n+1))
		run(t, conn, `SELECT weir.position('g', 'orders', 0), weir.position('none', 'orders', 1)`)
		carry(1)
	}
	check(peer.Leave(ctx))
	_, err = m.door.Positions(ctx, "g", []group.TopicPartition{{Topic: topic.ID}, {Topic: topic.ID, Partition: 1}})
	check(err)
	_, err = m.inbox.still(ctx, []row{{id: 1}, {id: 30001}})
	check(err)
	check(m.inbox.mute(ctx, time.Minute))

	_, err = queue.New(m.log, nil, queue.Config{}).Create(ctx, queue.Spec{Name: "q"})
	check(err)
	run(t, conn, `SELECT weir.enqueue('q', 'v'), weir.enqueue_all('q', NULL, ARRAY['v']); BEGIN; SELECT weir.enqueue('q', 'v', delay => '1 minute'); ROLLBACK`)
	carry(1)
	run(t, conn, `SELECT weir.enqueue_id('q', 'v'), weir.enqueue_all_ids('q', NULL, ARRAY['v', 'w'])`)
	run(t, conn, `SELECT weir.message_state('q', currval('weir.inbox_id_seq'))`)
	carry(1)
	run(t, conn, `SELECT weir.message_state('q', currval('weir.inbox_id_seq'))`)
	run(t, conn, `SELECT weir.find_moved(p.id, 0, '1-1', 'q/1', false) FROM weir.partitions AS p WHERE p.topic = 'orders'`)
	driveQueue(t, m, conn, carry)
	run(t, conn, `SELECT weir.create_topic('made', 2), weir.create_queue('made', settings => '{"priorities": 2}'), weir.create_category('streams')`)
	run(t, conn, `SELECT weir.publish('made', 'k', 'v'), weir.enqueue('made', 'v', priority => 1), weir.enqueue_id('made', 'v'); SELECT weir.message_state('made', currval('weir.inbox_id_seq'))`)
	carry(2)
	run(t, conn, `SELECT weir.create_topic('made', 2), weir.create_queue('made', settings => '{"priorities": 2}'); SELECT * FROM weir.creations`)
	carry(2)
	driveStreams(t, m, conn, carry)

	gone, err := m.log.CreateTopic(ctx, eventlog.TopicSpec{Name: "gone", Partitions: 3})
	check(err)
	_, err = m.log.ChangeTopic(ctx, "gone", eventlog.TopicChange{Partitions: 4})
	check(err)
	_, err = m.log.Publish(ctx, gone.Partitions[0], batch.Record{Value: []byte("v")})
	check(err)
	run(t, conn, `SELECT weir.commit_offset('g', 'gone', 0, 1)`)
	check(m.log.DeleteTopic(ctx, "gone"))
	m.forget(ctx)
	check(m.log.Trim(ctx, p, 30_000)) // segments that are wanted in part, and others not at all
	_, _, err = m.door.store.Changes(ctx, eventlog.Mark{})
	check(err)
	run(t, session(t, address+"&application_name=setup"), `VACUUM weir.inbox`) // or the other mover walks what was moved
	other := still(t, address)                                                 // it enrolls, follows and walks
	_, err = other.step(ctx)
	check(err)
}

// driveReplace replaces a few batches by themselves, as compaction does, among them the last.
func driveReplace(t *testing.T, m *Mover, p eventlog.Partition) {
	bounds, err := m.log.Bounds(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	next := bounds[0].Bounds.Next
	for _, from := range []eventlog.Offset{next - 15, next - 1, next - 10} {
		got, err := m.door.store.Read(t.Context(), []eventlog.Span{{Partition: p, From: from, MaxBytes: 150_000}}, 150_000)
		if err != nil || got[0].Err != nil || len(got[0].Batches) == 0 {
			t.Fatal(err, got)
		}
		replace := eventlog.Replace{Partition: p, From: got[0].Batches[0].Base}
		replace.To = replace.From
		for _, b := range got[0].Batches {
			b.Batch.Partition = p
			replace.Batches, replace.To = append(replace.Batches, b.Batch), b.End()
		}
		out, err := m.door.store.Commit(t.Context(), []eventlog.Entry{{
			Checks: []eventlog.Check{{Key: "replaced"}}, Puts: []eventlog.Put{{Key: "replaced", Version: 1}}, Replaces: []eventlog.Replace{replace},
		}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
}

// driveQueue claims messages by Go and by SQL, and answers for them by SQL.
func driveQueue(t *testing.T, m *Mover, conn *pgx.Conn, carry func(int)) {
	q, first := oneClaimed(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { newClaims(m.door, m.cfg).run(ctx) })
	defer serving.Wait()
	defer cancel()
	for range 3 {
		if _, err := q.Enqueue(ctx, queue.NewMessage{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(most int, wait string) (receipts []any) {
		var text []byte
		run(t, conn, `SELECT weir.note_pool()`) // as a weir behind a pooler: request_claim then counts those that wait
		if err := conn.QueryRow(ctx, fmt.Sprintf(`CALL weir.claim('mail', %d, '1 hour', '%s', 'w')`, most, wait)).Scan(&text); err != nil {
			t.Fatal(err)
		}
		var got []struct{ Receipt string }
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			receipts = append(receipts, m.Receipt)
		}
		return receipts
	}
	answer := func(call string, receipt any) {
		if _, err := conn.Exec(ctx, `SELECT `+call, receipt); err != nil {
			t.Fatal(err)
		}
		carry(1)
	}
	receipts := claim(3, `10 s`)
	answer(`weir.ack($1)`, first.Receipt)
	answer(`weir.extend($1, '1 minute')`, receipts[0])
	answer(`weir.nack($1, delay => '0')`, receipts[1])
	answer(`weir.nack($1, reject => true)`, claim(1, `10 s`)[0]) // its second attempt: has nobody acknowledged it?
	run(t, conn, `SELECT * FROM weir.messages WHERE queue = 'mail'`)
	claim(1, `2 s`) // there is none: the request is kept
}

// driveStreams appends to streams by Go and by SQL, and reads them by SQL before and after the
// events are carried.
func driveStreams(t *testing.T, m *Mover, conn *pgx.Conn, carry func(int)) {
	c, err := m.cfg.Streams.CreateCategory(t.Context(), stream.Spec{Name: "account"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		run(t, conn, fmt.Sprintf(`SELECT weir.append('account', 'a', %d, 'T', '{"a": 1}'), weir.append('account', 'b', 'any', 'T', 'v')`, 5*n))
		run(t, conn, fmt.Sprintf(`SELECT weir.append_all('account', 'a', %d, ARRAY['T', 'T'], ARRAY['v', 'w'], ids => ARRAY['%d', 'x']), weir.append_all('account', 'a', 'exists', ARRAY['T'], ARRAY['v'])`, 5*n+1, n))
		read := func() {
			run(t, conn, `SELECT * FROM weir.stream('account', 'a', 1, 13); SELECT * FROM weir.stream('account', 'a', backward => true, max_events => 2); SELECT weir.state_at('account', 'a'); SELECT * FROM weir.streams WHERE category = 'account'`)
			run(t, conn, fmt.Sprintf(`SELECT weir.append_all('account', 'a', %d, ARRAY['T', 'T'], ARRAY['v', 'w'], ids => ARRAY['%d', 'x'])`, 5*n+1, n))
		}
		read()
		carry(2)
		read()
		if _, err := c.Append(t.Context(), "a", stream.Expected(5*n+4), stream.NewEvent{Type: "T", Tags: []string{"x", "y"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// loggedPlan is a plan as auto_explain logs it.
type loggedPlan struct {
	Query string `json:"Query Text"`
	Plan  node
	where string // the function that it is in
}

type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Cond     string  `json:"Index Cond"`
	Filter   string  `json:"Filter"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Hit      float64 `json:"Shared Hit Blocks"`
	Read     float64 `json:"Shared Read Blocks"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Plans    []node
}

func (n *node) each(visit func(*node)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].each(visit)
	}
}

// excess tells in what a scan read more than it found.
func (n *node) excess() string {
	const (
		always   = 200 // pages: a few levels of an index, versions that are to be vacuumed, and the catalog where a connection meets it for the first time
		eachLoop = 12
		eachRow  = 6
	)
	if !strings.HasSuffix(n.Type, "Scan") || n.Relation == "" && n.Index == "" || strings.HasPrefix(n.Relation+n.Index, "pg_") {
		return ""
	}
	pages, found := n.Hit+n.Read, n.Rows*n.Loops
	for i := range n.Plans { // what subplans of its conditions read counts there
		pages -= n.Plans[i].Hit + n.Plans[i].Read
	}
	if pages <= always+eachLoop*n.Loops+eachRow*found && n.Removed*n.Loops <= 1000+20*found {
		return ""
	}
	return fmt.Sprintf("%s of %s by %q reads %.0f pages and discards %.0f rows for %.0f rows, in %.0f loops; condition %s, filter %s",
		n.Type, n.Relation, n.Index, pages, n.Removed*n.Loops, found, n.Loops, n.Cond, n.Filter)
}

// explained reads the plans of a server's log, but for those of the test's own setup.
func explained(t *testing.T, log string) (plans []loggedPlan) {
	t.Helper()
	lines := strings.Split(log, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasSuffix(lines[i], "  plan:") || strings.HasPrefix(lines[i], "setup|") {
			continue
		}
		var text strings.Builder
		for i++; i < len(lines) && strings.HasPrefix(lines[i], "\t"); i++ {
			text.WriteString(lines[i])
		}
		var p loggedPlan
		if err := json.Unmarshal([]byte(text.String()), &p); err != nil {
			t.Fatalf("%v: %s", err, text.String())
		}
		p.where = "a statement of its own"
		if i < len(lines) {
			if _, context, found := strings.Cut(lines[i], "|CONTEXT:  "); found {
				p.where = context
				for j := i + 1; j < len(lines) && strings.HasPrefix(lines[j], "\t") && !strings.HasPrefix(p.where, "PL/pgSQL"); j++ {
					p.where = strings.TrimSpace(lines[j])
				}
			}
		}
		i--
		plans = append(plans, p)
	}
	return plans
}
