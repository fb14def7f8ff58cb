package sqlfn

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/group"
)

// sessionOf is a connection whose statements must not fail.
func sessionOf(t *testing.T, address string) (run func(sql string)) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// kept lists the positions that weir.commit_offset keeps.
func kept(t *testing.T, address string) string {
	t.Helper()
	return pgtest.Value(t, address, `
		SELECT coalesce(string_agg(format('%s=%s', c.grp, x.next_offset), ' ' ORDER BY c.grp), 'none')
		FROM weir.consumer c FULL JOIN weir.consumed x ON x.consumer = c.id`)
}

// Who deletes a group lets it begin anew, also in SQL.
func TestPositionsGoWithTheirGroup(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	made, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	Fill(t, m.log, made)
	run := sessionOf(t, address)
	position := func() string {
		t.Helper()
		return pgtest.Value(t, address, `SELECT coalesce(weir.position('g', 'orders', 0), -1)`)
	}
	commit := func(at int) {
		t.Helper()
		run(fmt.Sprintf(`SELECT weir.commit_offset('g', 'orders', 0, %d)`, at))
		if _, err := m.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.carryPositions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run(`SELECT weir.commit_offset('other', 'orders', 0, 5)`)
	commit(10)
	groups := group.New(m.log, group.Config{Beside: m.door})
	if err := groups.Delete(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if got, left := position(), kept(t, address); got != "-1" || left != "other=5" {
		t.Errorf("after its deletion the group is at %s; kept: %s", got, left)
	}
	commit(3)
	if got := position(); got != "3" {
		t.Errorf("the new group is at %s, want 3", got)
	}
	if err := m.door.Forget(t.Context(), []string{"g"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := position(); got != "3" {
		t.Errorf("by its key alone the group is at %s, want 3", got)
	}
}

// Who deletes offsets of a group lets it begin anew in these partitions, also in SQL.
func TestPositionsGoWithTheirOffsets(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	made, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	Fill(t, m.log, made)
	run, holder := sessionOf(t, address), sessionOf(t, address)
	positions := func() string {
		t.Helper()
		return pgtest.Value(t, address, `SELECT format('%s %s', coalesce(weir.position('g', 'orders', 0), -1), coalesce(weir.position('g', 'orders', 1), -1))`)
	}
	carry := func() {
		t.Helper()
		if _, err := m.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.carryPositions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run(`SELECT weir.commit_offset('other', 'orders', 0, 5), weir.commit_offset('g', 'orders', 0, 10), weir.commit_offset('g', 'orders', 1, 20)`)
	carry()
	groups := group.New(m.log, group.Config{Beside: m.door})
	first := group.Committed{Name: "orders", TopicPartition: group.TopicPartition{Topic: made.ID, Partition: 0}}
	if errs, err := groups.DeleteOffsets(t.Context(), "g", []group.Committed{first}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	if got, left := positions(), kept(t, address); got != "-1 20" || left != "g=20 other=5" {
		t.Errorf("after the deletion of its offset the group is at %s; kept: %s", got, left)
	}
	both := []group.TopicPartition{first.TopicPartition, {Topic: made.ID, Partition: 1}}
	if keeps, err := m.door.Keeps(t.Context(), "g", both); err != nil || !slices.Equal(keeps, []bool{false, true}) {
		t.Errorf("SQL has committed in %v, want in the second partition; %v", keeps, err)
	}
	run(`SELECT weir.commit_offset('g', 'orders', 0, 3, from_offset => 0)`)
	if got := positions(); got != "3 20" {
		t.Errorf("then it is at %s, want 3 20", got)
	}

	// What is on its way to the key is all that there is: it stays.
	holder(`BEGIN; SELECT weir.commit_offset('g', 'orders', 1, 21)`)
	for range 2 {
		if err := m.door.Forget(t.Context(), []string{"g"}, nil); err != nil {
			t.Fatal(err)
		}
		holder(`COMMIT`)
		if got := positions(); got != "3 21" {
			t.Errorf("after Forget before the keys have them: %s, want 3 21", got)
		}
	}
	carry()
	if err := m.door.Forget(t.Context(), []string{"g"}, nil); err != nil {
		t.Fatal(err)
	}
	if got, left := positions(), kept(t, address); got != "3 21" || left != "other=5" {
		t.Errorf("by its keys alone the group is at %s, want 3 21; kept: %s", got, left)
	}
}

func TestPositionsGoWithTheirTopic(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	topic := func(name string) {
		t.Helper()
		made, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: 2})
		if err != nil {
			t.Fatal(err)
		}
		Fill(t, m.log, made)
	}
	step := func() {
		t.Helper()
		if _, err := m.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	topic("orders")
	topic("other")
	run, holder := sessionOf(t, address), sessionOf(t, address)
	run(`SELECT weir.commit_offset('old', 'orders', 0, 10), weir.commit_offset('old too', 'orders', 1, 20), weir.commit_offset('kept', 'other', 0, 30)`)
	run(`SELECT weir.commit_offset('held', 'orders', 0, 40)`)
	holder(`BEGIN; SELECT weir.commit_offset('held', 'orders', 0, 41)`)
	if err := m.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	topic("orders")
	if got := pgtest.Value(t, address, `SELECT coalesce(weir.position('old', 'orders', 0), -1)`); got != "-1" {
		t.Errorf("in a topic made anew the group is at %s already", got)
	}
	run(`SELECT weir.commit_offset('new', 'orders', 0, 1)`)

	step()
	if got := kept(t, address); got != "held=40 kept=30 new=1" {
		t.Errorf("kept: %s", got)
	}
	holder(`COMMIT`)
	step()
	if got := kept(t, address); got != "held=41 kept=30 new=1" {
		t.Errorf("before an hour has gone by: %s", got)
	}
	m.prunedAt = m.prunedAt.Add(-forgetEvery)
	step()
	if got := kept(t, address); got != "kept=30 new=1" {
		t.Errorf("after an hour: %s", got)
	}
}

// The topic and the first position in it become visible together.
func TestAPositionInAYoungTopicIsNotForgotten(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	run := sessionOf(t, address)
	run(`BEGIN; INSERT INTO weir.state (key, version, put_at, value)
		VALUES ('topic/young', 1, now(), '{"id":"00112233445566778899aabbccddeeff","partitions":[7]}')`)
	run(`INSERT INTO weir.partition (id, next_offset) VALUES (7, 5)`)
	run(`SELECT weir.commit_offset('g', 'young', 0, 5)`)
	m.forget(t.Context())
	run(`COMMIT`)
	m.forget(t.Context())
	if got := kept(t, address); got != "g=5" {
		t.Errorf("kept: %s", got)
	}
}

func TestManyPositionsAreForgottenInSteps(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	pgtest.Exec(t, address, `INSERT INTO weir.consumer (grp, topic, partition) SELECT 'g', gen_random_uuid(), 0 FROM generate_series(1, 10001)`)
	m.forget(t.Context())
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.consumer`); got != "1" || !m.prunedAt.IsZero() {
		t.Errorf("%s are left, and the next look is due an hour after %v", got, m.prunedAt)
	}
	m.forget(t.Context())
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.consumer`); got != "0" || m.prunedAt.IsZero() {
		t.Errorf("%s are left, and the next look is due an hour after %v", got, m.prunedAt)
	}
}

// A mover that nothing stirs wakes by itself.
func TestAnIdleMoverPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Mover{prunedAt: time.Now(), cfg: Config{Poll: pollEvery}}
		began := time.Now()
		m.idle(t.Context(), -1, began, nil)
		if slept := time.Since(began); slept > pollEvery || slept < pollEvery/2 {
			t.Errorf("it slept for %v", slept)
		}
	})
}
