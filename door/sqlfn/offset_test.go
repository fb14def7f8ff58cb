package sqlfn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/group"
)

// refusal is what a statement was refused with: SQLSTATE, message and hint.
func refusal(t testing.TB, conn *pgx.Conn, sql string, args ...any) *pgconn.PgError {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		t.Fatalf("%s: %v; it should be refused", sql, err)
	}
	return refused
}

// position asks where a group goes on.
func position(t testing.TB, conn *pgx.Conn, group string, topic ...string) (at int64) {
	t.Helper()
	var found *int64
	if err := conn.QueryRow(t.Context(), `SELECT weir.position($1, $2, 0)`, group, append(topic, "orders")[0]).Scan(&found); err != nil {
		t.Fatal(err)
	}
	if found == nil {
		return -1
	}
	return *found
}

// carried waits until a group's key is at an offset.
func (p *process) carried(topic eventlog.Topic, name string, want eventlog.Offset) {
	p.t.Helper()
	key := group.OffsetKey(name, group.TopicPartition{Topic: topic.ID})
	eventually(p.t, fmt.Sprintf("%s is at %d", key, want), func() bool {
		kv, err := p.log.Get(p.t.Context(), key)
		return err == nil && strings.Contains(string(kv.Value), fmt.Sprintf(`"offset":%d,`, want))
	})
}

// eventually waits for something that another process does.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("30 seconds went by, and not yet: %s", what)
		}
	}
}

// kafkaCommit commits an offset as the Kafka door does.
func (p *process) kafkaCommit(topic eventlog.Topic, name string, offset eventlog.Offset) {
	p.t.Helper()
	state, err := p.log.Get(p.t.Context(), group.StateKey(name))
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = p.log.Append(p.t.Context(), group.OffsetEntry(state, name, []group.Committed{{
		TopicPartition: group.TopicPartition{Topic: topic.ID}, Name: topic.Name, Offset: offset, LeaderEpoch: -1,
	}}))
	if err != nil {
		p.t.Fatal(err)
	}
}

func TestAPositionMovesWithItsTransaction(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	topic := p.filled("orders", 1)
	conn := connect(t, address)
	for _, name := range []string{"g", `odd name/%ü;,`} {
		if at := position(t, conn, name); at != -1 {
			t.Errorf("before anything was committed group %q is at %d", name, at)
		}
		exec(t, conn, `BEGIN`)
		exec(t, conn, `SELECT weir.commit_offset($1, 'orders', 0, 10, 0)`, name)
		exec(t, conn, `ROLLBACK`)
		if at := position(t, conn, name); at != -1 {
			t.Errorf("after a rollback group %q is at %d", name, at)
		}
		exec(t, conn, `SELECT weir.commit_offset($1, 'orders', 0, 10, 0)`, name)
		exec(t, conn, `SELECT weir.commit_offset($1, 'orders', 0, 25, 10)`, name)
		if at := position(t, conn, name); at != 25 {
			t.Errorf("group %q is at %d, want 25", name, at)
		}
		p.carried(topic, name, 25)
		if at := position(t, conn, name); at != 25 {
			t.Errorf("carried, group %q is at %d, want 25", name, at)
		}
	}
	// Many times, so that the row turns.
	for i := range 200 {
		exec(t, conn, `SELECT weir.commit_offset('g', 'orders', 0, $1, $2)`, 26+i, 25+i)
	}
	p.carried(topic, "g", 225)
}

func TestAPositionThatIsNotTheGroupsIsRefused(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.filled("orders", 2)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.commit_offset('g', 'orders', 0, 50)`)
	state := `{"generation":7,"members":[{"id":"m-1","client_id":"c","client_host":"h"}]}`
	if _, err := p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: group.StateKey("live"), Version: 3, Value: []byte(state)}}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ args, code, message, hint string }{
		"handled before":        {`'g', 'orders', 0, 50`, "WE004", "at offset 50", "continue from 50"},
		"behind":                {`'g', 'orders', 0, 40`, "WE004", "next_offset is 40, and must be higher", "continue from 50"},
		"from behind":           {`'g', 'orders', 0, 60, 40`, "WE004", "but from_offset is 40", "continue from 50"},
		"from ahead":            {`'g', 'orders', 0, 60, 55`, "WE004", "but from_offset is 55", "continue from 50"},
		"behind the end":        {`'g', 'orders', 0, 1001`, "WE006", `next_offset is 1001, which is past the end of partition 0 of topic "orders"`, "plus one"},
		"the largest number":    {`'g', 'orders', 0, 9223372036854775807`, "WE006", "its next offset is 1000", ""},
		"from, and no position": {`'new', 'orders', 0, 60, 55`, "WE004", "has committed nothing in partition 0 of topic \"orders\", so it is at the first offset, 0, but from_offset is 55", "continue from 0"},
		"old generation":        {`'live', 'orders', 0, 1, 0, 'm-1', 6`, "WE005", "generation 6 is not the current one of group \"live\", which is 7", "partitions that the group assigns to you now"},
		"no group":              {`'none', 'orders', 0, 1, 0, NULL, 1`, "WE005", "which is none", ""},
		"not a member":          {`'live', 'orders', 0, 1, 0, 'm-2', 7`, "WE005", `"m-2" is not a member`, "join the group again"},
		"member of no group":    {`'none', 'orders', 0, 1, 0, 'm-2'`, "WE005", `"m-2" is not a member`, ""},
		"no topic":              {`'g', 'nothing', 0, 1`, "WE001", `topic "nothing" does not exist`, "weir topic create"},
		"no partition":          {`'g', 'orders', 2, 1`, "WE002", "no partition 2", "0 to 1"},
		"negative":              {`'g', 'orders', 0, -1`, "22023", "next_offset is negative", "begin at 0"},
		"negative from":         {`'g', 'orders', 0, 1, -1`, "22023", "from_offset is negative", "begin at 0"},
		"null group":            {`NULL, 'orders', 0, 1`, "22004", "grp is null", ""},
		"null topic":            {`'g', NULL, 0, 1`, "22004", "topic is null", ""},
		"null partition":        {`'g', 'orders', NULL, 1`, "22004", "partition is null", ""},
		"null next_offset":      {`'g', 'orders', 0, NULL`, "22004", "next_offset is null", ""},
		"empty group":           {`'', 'orders', 0, 1`, "22023", "grp has 0 bytes", "1 to 512"},
		"group too long":        {`repeat('x', 513), 'orders', 0, 1`, "22023", "grp has 513 bytes", "1 to 512"},
		"offset beyond numbers": {`'g', 'orders', 0, 9223372036854775808`, "42883", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := refusal(t, conn, `SELECT weir.commit_offset(`+c.args+`)`)
			if got.Code != c.code || !strings.Contains(got.Message, c.message) || !strings.Contains(got.Hint, c.hint) {
				t.Errorf("%s %s (%s), want %s %q (%q)", got.Code, got.Message, got.Hint, c.code, c.message, c.hint)
			}
		})
	}
	exec(t, conn, `SELECT weir.commit_offset('live', 'orders', 0, 1, 0, 'm-1', 7)`)
}

// Two consumers that both believe a partition to be theirs: the one that was taken for dead is in
// the middle of its transaction.
func TestOfAZombieAndItsSuccessorOneCommits(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.filled("orders", 1)
	zombie, successor, watcher := connect(t, address), connect(t, address), connect(t, address)
	exec(t, zombie, `CREATE TABLE done (event bigint PRIMARY KEY, by text)`)
	for round := range int64(4) {
		from := 10 * round
		exec(t, zombie, `BEGIN`)
		exec(t, zombie, `INSERT INTO done SELECT g, 'zombie' FROM generate_series($1::bigint, $1 + 4) AS g`, from)
		exec(t, zombie, `SELECT weir.commit_offset('g', 'orders', 0, $1, $2)`, from+5, from)
		answered := make(chan error, 1)
		go func() {
			_, err := successor.Exec(context.Background(), fmt.Sprintf(`
				BEGIN; SELECT weir.commit_offset('g', 'orders', 0, %d, %d);
				INSERT INTO done SELECT g, 'successor' FROM generate_series(%d, %d) AS g; COMMIT`, from+10, from, from, from+9))
			answered <- err
		}()
		eventually(t, "the successor waits", func() bool {
			var n int
			err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n)
			return err == nil && n > 0
		})
		if round%2 == 0 {
			exec(t, zombie, `COMMIT`)
		} else {
			exec(t, zombie, `ROLLBACK`)
		}
		err := <-answered
		var refused *pgconn.PgError
		switch {
		case round%2 == 1 && err != nil:
			t.Fatalf("the zombie rolled back, and the successor got %v", err)
		case round%2 == 0 && (!errors.As(err, &refused) || refused.Code != "WE004"):
			t.Fatalf("the zombie committed, and the successor got %v", err)
		case round%2 == 0:
			exec(t, successor, `ROLLBACK`)
			exec(t, successor, `BEGIN`)
			exec(t, successor, `SELECT weir.commit_offset('g', 'orders', 0, $1, $2)`, from+10, from+5)
			exec(t, successor, `INSERT INTO done SELECT g, 'successor' FROM generate_series($1::bigint, $1 + 4) AS g`, from+5)
			exec(t, successor, `COMMIT`)
		}
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM done`); got != "40" {
		t.Errorf("%s events were handled, want 40, each once", got)
	}
}

// What Kafka clients and tools commit for the group counts from when they commit it, however old or
// young what SQL committed is.
func TestThePositionCommittedLastCounts(t *testing.T) {
	address := pgtest.URL(t)
	p := open(t, address) // nothing is moved yet
	defer p.store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go p.log.Run(ctx)
	topic := p.filled("orders", 1)
	conn := connect(t, address)
	sql := func(next, from int64) {
		t.Helper()
		exec(t, conn, `SELECT weir.commit_offset('g', 'orders', 0, $1, $2)`, next, from)
	}
	at := func(want int64) {
		t.Helper()
		if got := position(t, conn, "g"); got != want {
			t.Fatalf("the group is at %d, want %d", got, want)
		}
	}
	p.kafkaCommit(topic, "g", 100)
	at(100)
	sql(120, 100)
	at(120)
	p.kafkaCommit(topic, "g", 30) // a reset, before 120 was carried
	at(30)
	if got := refusal(t, conn, `SELECT weir.commit_offset('g', 'orders', 0, 130, 120)`); got.Code != "WE004" {
		t.Errorf("after the reset: %v", got)
	}

	other := start(t, address) // carries 120, and must not undo the reset
	exec(t, conn, `SELECT weir.commit_offset('h', 'orders', 0, 1)`)
	other.carried(topic, "h", 1)
	other.carried(topic, "g", 30)
	at(30)
	sql(45, 30)
	at(45)
	other.carried(topic, "g", 45)
	at(45)
	p.kafkaCommit(topic, "g", 60) // a Kafka consumer goes on from there
	at(60)
	sql(70, 60)
	other.carried(topic, "g", 70)
	at(70)
	p.kafkaCommit(topic, "g", 0)
	at(0)
	sql(5, 0)
	sql(9, 5)
	other.carried(topic, "g", 9)
	at(9)
}

// A member whose partition went to another is in the middle of its transaction, and saw the group
// before that. It is refused, or it was first: in its own snapshot, which is from before, and as
// long as its successor has committed nothing. Of the two one commits, whatever the order.
func TestWhoLostAPartitionInARebalanceDoesNotCommitWithItsSuccessor(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	topic := p.filled("orders", 1)
	stale, fresh := connect(t, address), connect(t, address)
	exec(t, stale, `CREATE TABLE done (grp text, by text)`)
	join := func(t *testing.T, name string) *group.Peer {
		t.Helper()
		peer, err := group.New(p.log, group.Config{}).JoinPeer(t.Context(), group.PeerConfig{Group: name, Topics: []string{topic.Name}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := peer.Leave(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return peer
	}
	// finish commits a transaction that has begun, from offset 0 to next, and returns the SQLSTATE
	// of the refusal; none: it is committed.
	finish := func(t *testing.T, conn *pgx.Conn, args ...any) (state string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), `SELECT weir.commit_offset($1, 'orders', 0, $2, 0, $3, $4)`, args...)
		if err == nil {
			_, err = conn.Exec(t.Context(), `COMMIT`)
		}
		var refused *pgconn.PgError
		switch {
		case err == nil:
			return ""
		case !errors.As(err, &refused):
			t.Fatal(err)
		}
		exec(t, conn, `ROLLBACK`)
		return refused.Code
	}
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		for _, late := range []bool{true, false} { // the successor has committed before
			for _, by := range []string{"generation", "member"} {
				name := fmt.Sprint(level, ", ", by, ", late: ", late)
				t.Run(name, func(t *testing.T) {
					begin := func(conn *pgx.Conn, who, level string) {
						exec(t, conn, `BEGIN ISOLATION LEVEL `+level)
						exec(t, conn, `INSERT INTO done VALUES ($1, $2)`, name, who) // its snapshot is from here
					}
					a := join(t, name)
					var member, generation any = nil, a.Generation()
					if by == "member" {
						member, generation = a.ID(), nil
					}
					begin(stale, "stale", level)
					if err := a.Leave(t.Context()); err != nil {
						t.Fatal(err)
					}
					b := join(t, name)
					if own := b.Assignment().Own; len(own) != 1 {
						t.Fatalf("the successor has %+v", own)
					}
					succeed := func() string {
						begin(fresh, "fresh", "READ COMMITTED")
						return finish(t, fresh, name, 20, b.ID(), b.Generation())
					}
					var first, second string
					if late {
						second = succeed()
						first = finish(t, stale, name, 10, member, generation)
					} else {
						first = finish(t, stale, name, 10, member, generation)
						second = succeed()
					}
					own := level != "READ COMMITTED" // snapshot
					switch {
					case first == "WE005" && second == "" && !own:
					case (first == "WE005" || first == "40001") && second == "" && own:
					case first == "" && second == "WE004" && own && !late:
					default:
						t.Errorf("the stale member's commit: %q, its successor's: %q", first, second)
					}
					if n := pgtest.Value(t, address, `SELECT count(*) FROM done WHERE grp = '`+name+`'`); n != "1" {
						t.Errorf("%s of their transactions are committed", n)
					}
				})
			}
		}
	}
}
