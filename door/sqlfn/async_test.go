package sqlfn

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/group"
)

// crashing starts a server that writes commits which nobody waits for seconds later.
func crashing(t *testing.T) *pgtest.Server {
	t.Helper()
	srv := pgtest.Start(t)
	for _, setting := range []string{`wal_writer_delay = '10s'`, `wal_writer_flush_after = 0`, `full_page_writes = off`} {
		pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET `+setting)
	}
	srv.Restart()
	return srv
}

// A worker's session does not wait for the disk, not even where the call asked for it. The mover
// finds its ack, then the server crashes: the message is done where the work is there.
func TestAnAckThatTheMoverFoundIsNotLostInACrash(t *testing.T) {
	srv := crashing(t)
	address := srv.URL()
	m := still(t, address)
	q, got := oneClaimed(t, m)
	worker := session(t, address)
	run(t, worker, `CREATE TABLE public.work (done int); CHECKPOINT`)
	run(t, worker, `SELECT pg_switch_wal()`)
	run(t, worker, `SET synchronous_commit = off`)
	run(t, worker, fmt.Sprintf(`BEGIN; INSERT INTO public.work VALUES (1); SELECT weir.ack('%s'); SET LOCAL synchronous_commit = off; COMMIT`, got.Receipt))
	found, err := m.inbox.poll(t.Context())
	if err != nil || len(found.rows) != 1 {
		t.Fatal(err, found)
	}
	killSession(t, address)
	for late := time.Now().Add(time.Minute); ; {
		if err = m.moveMessages(t.Context(), found.rows); err == nil || time.Now().After(late) {
			break
		}
		if c, err := q.Find(t.Context(), got.ID); err == nil && c.State == "done" {
			break
		}
	}
	c, err := q.Find(t.Context(), got.ID)
	if err != nil {
		t.Fatal(err)
	}
	if work := pgtest.Value(t, address, `SELECT count(*) FROM public.work`); c.State == "done" && work != "1" {
		t.Errorf("the message is %q, and of its work %s rows are there", c.State, work)
	}
}

// A member of a group goes on from the offset that a transaction committed. If a crash could take
// that back, nobody would handle what was before it.
func TestAPositionThatMembersSeeIsNotLostInACrash(t *testing.T) {
	srv := crashing(t)
	address := srv.URL()
	m := still(t, address)
	ordersTopic(t, m)
	topic, err := m.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	Fill(t, m.log, topic)
	of := []group.TopicPartition{{Topic: topic.ID}}
	conn := session(t, address)
	run(t, conn, `CHECKPOINT`)
	run(t, conn, `SELECT pg_switch_wal()`)
	run(t, conn, `SET synchronous_commit = off`)
	run(t, conn, `BEGIN; SELECT weir.commit_offset('g', 'orders', 0, 10); SET LOCAL synchronous_commit = off; COMMIT`)
	before, err := m.door.Positions(t.Context(), "g", of)
	if err != nil || before[0].Offset != 10 {
		t.Fatal(err, before)
	}
	killSession(t, address)
	if got := pgtest.Value(t, address, `SELECT weir.position('g', 'orders', 0)`); got != "10" {
		t.Errorf("members went on from offset 10, and after a crash the group is at %q", got)
	}
}
