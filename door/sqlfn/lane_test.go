package sqlfn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/seed"
)

// addTopic makes a topic with one partition.
func (i *told) addTopic(name string, n int) {
	i.t.Helper()
	value := fmt.Sprintf(`{"id":"%032x","partitions":[%d]}`, n, n)
	outcomes, err := i.store.Commit(i.t.Context(), []eventlog.Entry{{
		Batches: []eventlog.Batch{{Partition: eventlog.Partition(n)}},
		Puts:    []eventlog.Put{{Key: "topic/" + name, Version: 1, Value: []byte(value)}},
	}})
	if err != nil || outcomes[0].Err != nil {
		i.t.Fatal(err, outcomes)
	}
}

// moves counts the moves until a row with this value is moved, and returns the values that were
// moved.
func (i *told) moves(value string) (n int, all []string) {
	i.t.Helper()
	for n < 1000 {
		got := i.look()
		if len(got) == 0 {
			break
		}
		i.move()
		n++
		all = append(all, got...)
		if slices.Contains(got, value) {
			return n, all
		}
	}
	i.t.Fatalf("%q was not moved: %d rows, %d moves", value, len(all), n)
	return
}

func TestABacklogOfOneTopicHoldsUpAnotherForTwoMoves(t *testing.T) {
	const bulk = `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'bulk ' || n FROM generate_series(1, 60000) n))`
	const bystander = `SELECT weir.publish('bystander', NULL, 'mine')`
	for name, meanwhile := range map[string]bool{"committed before the first look": false, "committed while the backlog is moved": true} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			in := openInbox(t, address)
			in.addTopic("bystander", 2)
			conn := session(t, address)
			run(t, conn, bulk)
			var before []string
			if meanwhile {
				before = in.look()
				in.move()
			}
			run(t, conn, bystander)
			n, all := in.moves("mine")
			t.Logf("the bystander waited for %d moves", n)
			if n > 2 {
				t.Errorf("the bystander waited for %d moves, want at most 2", n)
			}
			// All of the backlog comes once and in order, an event published behind it comes behind
			// it, and the topic is as others again.
			run(t, conn, tell("last"))
			_, rest := in.moves("last")
			all = slices.DeleteFunc(slices.Concat(before, all, rest), func(v string) bool { return v == "mine" })
			if len(all) != 60001 {
				t.Fatalf("%d rows were moved, want 60001", len(all))
			}
			for n, v := range all[:60000] {
				if v != fmt.Sprint("bulk ", n+1) {
					t.Fatalf("row %d is %q", n+1, v)
				}
			}
			in.expect()
			if in.behind() {
				t.Error("the topic still has a lane of its own, and nothing waits")
			}
		})
	}
}

// Whatever the lanes do: each committed row is moved once, and in each topic a transaction that
// began when another had committed comes behind it.
func TestLanesKeepTheOrderOfEachTopic(t *testing.T) {
	random := seed.Random(t)
	address := pgtest.URL(t)
	in := openInbox(t, address)
	in.most, in.span = 5, 1+random.Int64N(40)
	const topics = 4
	for n := range topics {
		in.addTopic(fmt.Sprint("t", n), n+2)
	}
	type tx struct {
		began, ended int // steps; ended 0: it did not commit
		rows         []string
	}
	var moved []string
	var all []*tx
	open := make([]*tx, 4)
	sessions := make([]func(string), len(open))
	for n := range sessions {
		conn := session(t, address)
		sessions[n] = func(sql string) { run(t, conn, sql) }
	}
	lanes := 0
	var goals []string // of the main lane, which lanes take as theirs: each is later than the one before
	move := func() bool {
		got := in.look()
		if goal, _ := in.mark.aim(); len(goals) == 0 || goal != goals[len(goals)-1] {
			if slices.Contains(goals, goal) {
				t.Fatalf("the main lane went back to %s", goal)
			}
			goals = append(goals, goal)
		}
		if len(got) == 0 {
			return false
		}
		if random.IntN(10) == 0 {
			return true // the move failed
		}
		in.move()
		moved = append(moved, got...)
		lanes = max(lanes, len(in.lanes))
		return true
	}
	for step := 1; step <= 1500; step++ {
		n := random.IntN(len(open))
		switch at := open[n]; {
		case random.IntN(3) == 0:
			move()
		case at == nil:
			open[n] = &tx{began: step}
			sessions[n](`BEGIN`)
		case random.IntN(3) == 0:
			open[n] = nil
			if random.IntN(5) == 0 {
				sessions[n](`ROLLBACK`)
				continue
			}
			sessions[n](`COMMIT`)
			at.ended = step
			all = append(all, at)
		default:
			count := 1
			if random.IntN(6) == 0 {
				count = 20 + random.IntN(30) // a backlog
			}
			topic := random.IntN(topics)
			var values []string
			for range count {
				v := fmt.Sprintf("t%d row %d %d", topic, step, len(values))
				values = append(values, "'"+v+"'")
				at.rows = append(at.rows, v)
			}
			sessions[n](fmt.Sprintf(`SELECT weir.publish_all('t%d', NULL, ARRAY[%s])`, topic, strings.Join(values, ",")))
		}
	}
	for move() {
	}
	// A look into fewer rows than it may take leaves no backlog. One lane beside the main lane is
	// enough: it may have got all topics at once (WEIR_SEED=15337491596925603292).
	if lanes == 0 && in.span > int64(in.most) {
		t.Errorf("there was no lane beside the main lane, with a span of %d", in.span)
	}
	at := make(map[string]int)
	for n, v := range moved {
		if _, twice := at[v]; twice {
			t.Fatalf("%q was moved twice", v)
		}
		at[v] = n
	}
	total := 0
	for _, a := range all {
		last := make(map[string]int) // of each topic
		for _, v := range a.rows {
			n, is := at[v]
			if !is {
				t.Fatalf("%q was committed and not moved", v)
			}
			if n < last[v[:2]] {
				t.Errorf("%q was moved before a row that its transaction published before it", v)
			}
			last[v[:2]] = n
			total++
		}
		for _, b := range all {
			if b.began < a.ended {
				continue
			}
			for _, v := range b.rows {
				if at[v] < last[v[:2]] {
					t.Fatalf("%q was moved before rows of a transaction that had committed before its own began", v)
				}
			}
		}
	}
	if total != len(moved) {
		t.Errorf("%d rows were moved, and %d were committed", len(moved), total)
	}
}
