package sqlfn_test

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/stream"
)

// login makes a role that is a member of others and returns the address for it.
func login(t testing.TB, address string, memberOf ...string) string {
	t.Helper()
	role := "weir_test_" + strings.ToLower(rand.Text()[:12])
	pgtest.Exec(t, address, `CREATE ROLE `+role+` LOGIN PASSWORD 'plain'`)
	t.Cleanup(func() { pgtest.Exec(t, address, `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	for _, of := range memberOf {
		pgtest.Exec(t, address, `GRANT `+of+` TO `+role)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "plain")
	return u.String()
}

const denied = "42501"

func TestRolesMayDoWhatIsTheirsAndNoMore(t *testing.T) {
	address := pgtest.URL(t)
	startQueues(t, address, true)
	p := start(t, address)
	p.create("orders", 1, nil)
	p.filled("positions", 1)
	if _, err := stream.New(p.log, stream.Config{}).CreateCategory(t.Context(), stream.Spec{Name: "accounts"}); err != nil {
		t.Fatal(err)
	}
	sessions := map[string]*pgx.Conn{
		"nobody":   connect(t, login(t, address)),
		"producer": connect(t, login(t, address, "weir_producer")),
		"consumer": connect(t, login(t, address, "weir_consumer")),
		"reader":   connect(t, login(t, address, "weir_reader")),
		"creator":  connect(t, login(t, address, "weir_creator")),
	}
	granted := login(t, address)
	u, _ := url.Parse(granted)
	pgtest.Exec(t, address, fmt.Sprintf(`SELECT weir.grant_to('%s', 'producer')`, u.User.Username()))
	sessions["granted"] = connect(t, granted)

	produce, consume, read, none := []string{"producer", "granted"}, []string{"consumer"}, []string{"consumer", "reader"}, []string(nil)
	for _, c := range []struct {
		sql string
		may []string
	}{
		{`SELECT weir.publish('orders', 'k', 'v')`, produce},
		{`SELECT weir.publish('orders', 'k', '{}'::jsonb)`, produce},
		{`SELECT weir.publish('orders', 'k', '\x00'::bytea)`, produce},
		{`SELECT weir.publish_all('orders', NULL, ARRAY['v'])`, produce},
		{`SELECT weir.tombstone('orders', 'k')`, produce},
		{`SELECT weir.enqueue_id('mail', 'v')`, produce},
		{`SELECT weir.enqueue_id('mail', '{}'::jsonb)`, produce},
		{`SELECT weir.enqueue_id('mail', '\x00'::bytea)`, produce},
		{`SELECT weir.enqueue_all_ids('mail', NULL, ARRAY['v'])`, produce},
		{`SELECT weir.message_state('mail', 1)`, []string{"producer", "granted", "consumer", "reader"}},
		{`SELECT weir.append('accounts', 's', 'any', 'T', 'v')`, produce},
		{`SELECT weir.append('accounts', 's', 'any', 'T', '{}'::jsonb)`, produce},
		{`SELECT weir.append('accounts', 's', 'any', 'T', '\x00'::bytea)`, produce},
		{`SELECT weir.append('accounts', 's-' || current_user, 0, 'T', 'v')`, produce},
		{`SELECT weir.append('accounts', 's-' || current_user, 1, 'T', '{}'::jsonb)`, produce},
		{`SELECT weir.append('accounts', 's-' || current_user, 2, 'T', '\x00'::bytea)`, produce},
		{`SELECT weir.append_all('accounts', 's', 'any', ARRAY['T'], ARRAY['v'])`, produce},
		{`SELECT weir.append_all('accounts', 's-' || current_user, 3, ARRAY['T'], ARRAY['v'])`, produce},
		{`SELECT * FROM weir.stream('accounts', 's')`, read},
		{`SELECT * FROM weir.state_at('accounts', 's')`, read},
		{`SELECT weir.commit_offset('g-' || current_user, 'positions', 0, 1)`, consume},
		{`SELECT weir.position('g', 'orders', 0)`, consume},
		{`SELECT * FROM weir.events('orders')`, read},
		{`SELECT * FROM weir.last_events('orders')`, read},
		{`SELECT * FROM weir.topics`, read},
		{`SELECT * FROM weir.partitions`, read},
		{`SELECT * FROM weir.groups`, read},
		{`SELECT * FROM weir.queues`, read},
		{`SELECT * FROM weir.messages`, read},
		{`SELECT * FROM weir.streams`, read},
		{`SELECT * FROM weir.projections`, read},
		{`SELECT weir.read_claim(0), weir.is_atomic('')`, consume},

		{`INSERT INTO weir.inbox (xact, topic, size) VALUES ('3', gen_random_uuid(), 1)`, none},
		{`SELECT * FROM weir.inbox`, none},
		{`DELETE FROM weir.inbox`, none},
		{`TRUNCATE weir.inbox`, none},
		{`DO $$ BEGIN LOCK TABLE weir.inbox IN ACCESS SHARE MODE; END $$`, none},
		{`SELECT nextval('weir.inbox_id_seq')`, none},
		{`SELECT * FROM weir.mover FOR UPDATE`, none},
		{`SELECT setval('weir.hushed', 2)`, none},
		{`DELETE FROM weir.incarnation`, none},
		{`SELECT * FROM weir.consumer FOR UPDATE`, none},
		{`UPDATE weir.consumed SET next_offset = 0`, none},
		{`SELECT * FROM weir.state`, none},
		{`SELECT * FROM weir.partition`, none},
		{`UPDATE weir.partition SET next_offset = 0`, none},
		{`SELECT * FROM weir.batch`, none},
		{`SELECT weir.commit('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '', '{}')`, none},
		{`SELECT weir.move('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '')`, none},
		{`SELECT weir.create_topic('orders')`, []string{"creator"}},
		{`SELECT weir.create_queue('mail')`, []string{"creator"}},
		{`SELECT weir.create_category('accounts')`, []string{"creator"}},
		{`SELECT * FROM weir.creations`, []string{"creator", "consumer", "reader"}},
		{`SELECT * FROM weir.creation`, none},
		{`SELECT * FROM weir.reserved`, none},
		{`SELECT weir.post_creation('topic', 'x', '{}')`, none},
		{`SELECT weir.end_creation(1, 'done', NULL)`, none},
		{`SELECT weir.forget_creations(1)`, none},
		{`SELECT * FROM weir.enqueued`, none},
		{`SELECT weir.note_enqueued('{}', '{}', '{}', '{}', '{}', '{}', '{}')`, none},
		{`SELECT weir.forget_enqueued(1)`, none},
		{`SELECT * FROM weir.look('3:3:', 0, NULL, 0, 10, 10, 10, NULL, NULL, true)`, none},
		{`SELECT * FROM weir.acked`, none},
		{`SELECT * FROM weir.appended`, none},
		{`DELETE FROM weir.held`, none},
		{`SELECT * FROM weir.secret`, none},
		{`SELECT weir.lock_number('k', '')`, none},
		{`SELECT weir.hold('k')`, none},
		{`SELECT weir.read_stream('stream/head/', 0, NULL, false, NULL, NULL, NULL)`, none},
		{`SELECT weir.uncarried('{}', '{}')`, none},
		{`SELECT * FROM weir.claim_request`, none},
		{`SELECT * FROM weir.queue_parts`, none},
		{`SELECT weir.take_requests('', 0, 0, 1)`, none},
		{`SELECT weir.answer_requests('', '{}', '{}', '{}')`, none},
		{`SELECT weir.forget_answered('{}', '{}', '{}', '{}')`, none},
		{`SELECT weir.post_answer('{}')`, none},
		{`SELECT weir.trim(1, 1)`, none},
		{`SELECT weir.forget(1)`, none},
		{`SELECT weir.drop_segment(1)`, none},
		{`SELECT weir.set_rights()`, none},
		{`SELECT weir.grant_to(current_user::regrole, 'reader')`, none},
		{`CREATE TABLE weir.mine ()`, none},
		{`COPY (SELECT 1) TO PROGRAM 'true'`, none},
		{`SELECT pg_read_file('PG_VERSION')`, none},
		{`SET ROLE postgres`, none},
	} {
		for name, conn := range sessions {
			_, err := conn.Exec(t.Context(), c.sql)
			switch may := slices.Contains(c.may, name); {
			case may && err != nil:
				t.Errorf("%s as %s: %v", c.sql, name, err)
			case !may && (err == nil || !strings.Contains(err.Error(), denied)):
				t.Errorf("%s as %s: %v, want %s", c.sql, name, err, denied)
			}
		}
	}
	if got := p.read("orders", 10); len(got) != 10 { // five kinds, by two roles
		t.Errorf("%d events, want 10", len(got))
	}
}

// Any session that may connect can take any advisory lock, those that weir once used among them.
func TestWhoMayOnlyConnectDoesNotHoldUpTheMover(t *testing.T) {
	address := pgtest.URL(t)
	visitor := connect(t, login(t, address))
	if _, err := visitor.Exec(t.Context(), `SELECT pg_advisory_lock(2003134834, n) FROM generate_series(0, 67) AS n`); err != nil {
		t.Fatal(err)
	}
	p := start(t, address)
	p.create("orders", 1, nil)
	pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'v')`)
	p.read("orders", 1)
}

func TestNothingIsGivenToPublic(t *testing.T) {
	address := pgtest.URL(t)
	start(t, address)
	if got := pgtest.Value(t, address, `
		SELECT coalesce(string_agg(p.oid::regprocedure::text, ' '), 'none') FROM pg_proc p
		WHERE p.pronamespace = 'weir'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')`); got != "none" {
		t.Errorf("everybody may call %s", got)
	}
	if got := pgtest.Value(t, address, `
		SELECT coalesce(string_agg(c.relname, ' '), 'none') FROM pg_class c
		WHERE c.relnamespace = 'weir'::regnamespace AND c.relkind IN ('r', 'v', 'S', 'p', 'm')
		  AND has_table_privilege('public', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')`); got != "none" {
		t.Errorf("everybody may use %s", got)
	}
}

// What a role may not do itself, an administrator does for it: here one that may not create roles
// runs weir, on a server that has none.
func TestRolesMayBeMissing(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, `CREATE ROLE owner LOGIN PASSWORD 'plain'; GRANT CREATE ON DATABASE `+strings.TrimPrefix(u.Path, "/")+` TO owner`)
	u.User = url.UserPassword("owner", "plain")
	var said journal
	s, err := postgres.Open(t.Context(), u.String(), postgres.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sqlfn.Attach(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if lines := said.lines("CREATE ROLE weir_producer"); len(lines) != 1 || !strings.Contains(lines[0], "grant_to") {
		t.Errorf("what to do was said in %q", lines)
	}
	p := start(t, u.String())
	p.create("orders", 1, nil)
	if got := pgtest.Value(t, address, `SELECT count(*) FROM pg_roles WHERE rolname ~ '^weir_'`); got != "0" {
		t.Fatalf("%s roles were made by one who may not", got)
	}
	pgtest.Exec(t, address, `CREATE ROLE weir_producer NOLOGIN`)
	pgtest.Exec(t, u.String(), `SELECT weir.grant_to('weir_producer', 'producer')`)
	exec(t, connect(t, login(t, address, "weir_producer")), `SELECT weir.publish('orders', 'k', 'v')`)
	p.read("orders", 1)
}

// Objects of a user's own, found before those that are meant.
func TestASearchPathLeadsNobodyAstray(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	p.filled("positions", 1)
	mallory := login(t, address, "weir_producer", "weir_consumer")
	u, _ := url.Parse(mallory)
	role := u.User.Username()
	pgtest.Exec(t, address, `CREATE SCHEMA evil AUTHORIZATION `+role)
	conn := connect(t, mallory)
	exec(t, conn, `
		CREATE TABLE evil.caught (who text);
		CREATE FUNCTION evil.catch() RETURNS void LANGUAGE sql AS $$ INSERT INTO evil.caught SELECT current_user $$;
		CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); RETURN 'epoch'; END $$;
		CREATE FUNCTION evil.octet_length(text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); RETURN 0; END $$;
		CREATE FUNCTION evil.octet_length(bytea) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); RETURN 0; END $$;
		CREATE FUNCTION evil.convert_to(text, name) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); RETURN 'evil'; END $$;
		CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); END $$;
		CREATE FUNCTION evil.less(bigint, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); RETURN true; END $$;
		CREATE OPERATOR evil.> (LEFTARG = bigint, RIGHTARG = int, FUNCTION = evil.less);
		CREATE FUNCTION evil.joined(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); RETURN 'evil'; END $$;
		CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.joined);
		CREATE TABLE evil.state (key text, turn bigint, value bytea);
		CREATE TABLE evil.inbox ();
		SET search_path = evil, pg_catalog, weir;
		CREATE TEMP TABLE state (key text, turn bigint, value bytea);
		CREATE TEMP SEQUENCE hushed;
		CREATE FUNCTION evil.pg_sequence_last_value(regclass) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.catch(); RETURN 1; END $$`)
	exec(t, conn, `SELECT weir.publish('orders', 'k', 'text')`)
	exec(t, conn, `SELECT weir.publish('orders', 'k', '{}'::jsonb, '{"h": "v"}')`)
	exec(t, conn, `SELECT weir.publish_all('orders', ARRAY['k'], ARRAY['many'])`)
	exec(t, conn, `SELECT weir.tombstone('orders', 'k')`)
	exec(t, conn, `SELECT weir.commit_offset('g', 'positions', 0, 1, 0)`)
	exec(t, conn, `SELECT weir.position('g', 'positions', 0)`)
	if got, want := values(p.read("orders", 4)), []string{"text", "{}", "many", ""}; !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM evil.caught`); got != "0" {
		t.Errorf("%s calls of the user's own functions, by %s", got, pgtest.Value(t, address, `SELECT string_agg(DISTINCT who, ' ') FROM evil.caught`))
	}
}
