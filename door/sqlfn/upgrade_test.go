package sqlfn

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// released makes the schema as the scripts of a released version did.
func released(t *testing.T, address string, version int) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("testdata/version%d.sql.gz", version))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, string(script))
}

// What is in a database that a released version made stays there, and all else becomes as in one
// that is made today.
func TestAnOlderSchemaIsBroughtUpToDate(t *testing.T) {
	today := pgtest.URL(t)
	in := openInbox(t, today)
	in.store.Close()
	for _, version := range []int{4, 9, 13} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			address := pgtest.URL(t)
			released(t, address, version)
			pgtest.Exec(t, address, `INSERT INTO weir.state (key, version, put_at, value) VALUES
				('topic/orders', 1, now(), '{"id":"00112233445566778899aabbccddeeff","partitions":[7,9],"config":{"max.message.bytes":"200"}}'),
				('topic', 1, now(), 'no topic'), ('topics/orders', 1, now(), 'nor this')`)
			pgtest.Exec(t, address, `SELECT weir.commit('{7}', '{}', '{1,1}', '{7,7}', '{0,5}', '{1,1}', '{0,0}', '{0,3}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 'old')`)
			want := []string{"new"}
			publisher := session(t, address)
			if version >= 9 { // and nobody has to wait for a transaction that is open meanwhile
				pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'old')`)
				run(t, publisher, `BEGIN; SELECT weir.publish('orders', 'k', 'open'); SELECT * FROM weir.partitions`)
				want = []string{"old", "open", "new"}
			}
			in := openInbox(t, address)
			s := in.store
			run(t, publisher, `COMMIT`)
			if got, want := pgtest.Value(t, address, `SELECT string_agg(t::text, ' ') FROM weir.topic AS t`),
				`(orders,00112233-4455-6677-8899-aabbccddeeff,200,"{7,9}","{""max.message.bytes"": ""200""}")`; got != want {
				t.Errorf("topics: %s\nwant %s", got, want)
			}
			if _, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 7, Records: 1, Bytes: []byte("new")}}}}); err != nil {
				t.Fatal(err)
			}
			slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: 7, MaxBytes: 100}}, 100)
			if err != nil || slices[0].Bounds.Next != 6 || len(slices[0].Batches) != 2 || string(slices[0].Batches[0].Bytes) != "old" {
				t.Errorf("5 records and one more: %+v (%v)", slices, err)
			}
			pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'new')`)
			in.expect(want...)
			for _, what := range []string{
				`SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'weir'::regnamespace ORDER BY 1`,
				`SELECT format('%s %s %s', c.relname, c.relkind, c.relpersistence) FROM pg_class c
				 WHERE c.relnamespace = 'weir'::regnamespace AND c.relname <> 'watching' ORDER BY 1`,
				`SELECT format('%s %s %s %s', a.attrelid::regclass, a.attname, a.atttypid::regtype, a.attnotnull) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
				 WHERE c.relnamespace = 'weir'::regnamespace AND c.relname <> 'watching' ORDER BY 1`,
				`SELECT pg_get_viewdef(c.oid) FROM pg_class c WHERE c.relnamespace = 'weir'::regnamespace AND c.relkind = 'v' ORDER BY 1`,
				`SELECT indexdef FROM pg_indexes WHERE schemaname = 'weir' ORDER BY 1`,
				`SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'weir.state'::regclass ORDER BY 1`,
				`SELECT format('%s %s', p.oid::regprocedure, obj_description(p.oid, 'pg_proc')) FROM pg_proc p WHERE p.pronamespace = 'weir'::regnamespace ORDER BY 1`,
				`SELECT format('%s %s', kind, what) FROM weir.rights ORDER BY 1`,
				`SELECT format('%s %s %s', p.oid::regprocedure, p.proacl::text, p.prosecdef) FROM pg_proc p WHERE p.pronamespace = 'weir'::regnamespace ORDER BY 1`,
			} {
				all := `SELECT string_agg(x::text, E'\n') FROM (` + what + `) AS x`
				if upgraded, made := pgtest.Value(t, address, all), pgtest.Value(t, today, all); upgraded != made {
					t.Errorf("%s\nbrought up to date:\n%s\nmade today:\n%s", what, upgraded, made)
				}
			}
		})
	}
}

// The views of queues have changed. Views of others that use them stay, and so do rights.
func TestViewsOfQueuesAreReplacedAndWhatDependsOnThemStays(t *testing.T) {
	address := pgtest.URL(t)
	openInbox(t, address).store.Close()
	const views = `SELECT string_agg(pg_get_viewdef(c.oid) || c.relacl::text, E'\n' ORDER BY c.relname) FROM pg_class c WHERE c.relnamespace = 'weir'::regnamespace AND c.relkind = 'v'`
	today := pgtest.Value(t, address, views)
	older, err := os.ReadFile("testdata/queue_views45.sql")
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, `DROP VIEW weir.messages, weir.queues, weir.queue_parts; DROP FUNCTION weir.queue_runs;`+string(older)+`
		CREATE VIEW public.mine AS SELECT queue, claimed FROM weir.queues;
		DROP VIEW weir.creations; DROP TABLE weir.creation, weir.reserved, weir.enqueued;
		DELETE FROM weir.rights WHERE what ~ 'queue_runs|enqueue_all|enqueue_id|message_id|message_state|create_|creations'; SELECT weir.set_rights(); DELETE FROM weir.rights WHERE kind = 'creator'; DELETE FROM weir.migration WHERE part = 'sqlfn' AND number >= 46`)
	openInbox(t, address).store.Close()
	if got := pgtest.Value(t, address, views); got != today {
		t.Errorf("the views are\n%s\nwant\n%s", got, today)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM public.mine`); got != "0" {
		t.Errorf("the view of others has %s rows", got)
	}
}

// What the role may not do itself is said, with what to do about it.
func TestARoleThatMayNotOpenTheSchemaToOthersSaysSo(t *testing.T) {
	address := pgtest.URL(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	role := strings.TrimPrefix(u.Path, "/") + "_role"
	u.User = url.UserPassword(role, "plain")
	pgtest.Exec(t, address, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'plain'`, role))
	t.Cleanup(func() { pgtest.Exec(t, address, fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %s`, role, role)) })
	openInbox(t, address).store.Close() // the four roles are there, whoever made them
	pgtest.Exec(t, address, `DROP SCHEMA weir CASCADE; CREATE SCHEMA weir; GRANT ALL ON SCHEMA weir TO `+role)
	open := func() string {
		t.Helper()
		var said strings.Builder
		s, err := postgres.Open(t.Context(), u.String(), postgres.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := Attach(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return said.String()
	}
	said := open()
	if strings.Contains(said, "no privileges") || strings.Count(said, "As the owner of the schema: GRANT USAGE ON SCHEMA weir TO weir_producer") != 1 {
		t.Errorf("said: %s", said)
	}
	pgtest.Exec(t, address, `DROP SCHEMA weir CASCADE; CREATE SCHEMA weir; GRANT ALL ON SCHEMA weir TO `+role+`;
		GRANT USAGE ON SCHEMA weir TO weir_producer, weir_consumer, weir_reader, weir_creator`)
	if said := open(); said != "" {
		t.Errorf("all is as it should be, and it said: %s", said)
	}
}

// A version that did not have the triggers made the tables. A session has committed an offset, and
// its transaction is open: neither the start nor another session waits for it.
func TestTheStartDoesNotWaitForAnOpenTransactionThatCommittedAnOffset(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	ordersTopic(t, m)
	pgtest.Exec(t, address, `DROP TRIGGER durably ON weir.acked; DROP TRIGGER durably ON weir.consumed; INSERT INTO weir.consumed (consumer, next_offset, committed_at) VALUES (0, 0, now())`)
	triggers := func() string {
		return pgtest.Value(t, address, `SELECT count(*) FROM pg_trigger WHERE tgname = 'durably'`)
	}
	open := session(t, address)
	run(t, open, `BEGIN; UPDATE weir.consumed SET next_offset = 1`)
	openInbox(t, address).store.Close()
	if n := triggers(); n != "0" {
		t.Errorf("%s triggers were made beside the open transaction", n)
	}
	run(t, open, `COMMIT`)
	openInbox(t, address).store.Close()
	if n := triggers(); n != "2" {
		t.Errorf("%s triggers were made", n)
	}
}
