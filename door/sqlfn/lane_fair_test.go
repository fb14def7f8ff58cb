package sqlfn

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/seed"
)

// crowd is a full chunk of rows of topics with these numbers, one row of each after the other.
func crowd(topics ...int) *chunk {
	c := &chunk{full: true}
	for n, topic := range topics {
		id := int64(n + 1)
		c.rows = append(c.rows, row{id: id, topic: eventlog.TopicID{byte(topic >> 8), byte(topic)}, value: []byte("v"), time: time.Unix(id, 0)})
	}
	return c
}

// While a lane waits, the others that are there meanwhile get one turn each at most, and the main
// lane as many.
func TestEveryLaneIsServedInTurnWhateverSplits(t *testing.T) {
	random := seed.Random(t)
	i := &inbox{}
	type wait struct {
		polls int
		seen  map[*lane]bool // the lanes that were there meanwhile
	}
	waits := make(map[*lane]*wait)
	served := 0
	for n := range 20_000 {
		i.at = i.next()
		for _, l := range i.lanes {
			w := waits[l]
			if w == nil {
				w = &wait{seen: make(map[*lane]bool)}
				waits[l] = w
			}
			w.polls++
			for _, other := range i.lanes {
				w.seen[other] = true
			}
			if w.polls > 2*len(w.seen) {
				t.Fatalf("poll %d: a lane was not served for %d polls, with %d lanes there meanwhile", n, w.polls, len(w.seen))
			}
		}
		switch l := i.at; {
		case l != nil:
			served++
			delete(waits, l)
			if random.IntN(4) == 0 { // it has nothing left
				i.lanes = slices.DeleteFunc(i.lanes, func(x *lane) bool { return x == l })
			}
		case random.IntN(3) > 0:
			i.split(crowd(n))
		}
	}
	if served < 5000 {
		t.Errorf("lanes were served %d times in 20000 polls", served)
	}
}

// A look into the main lane compares each row with all topics of lanes.
func TestLanesHaveABoundOfTopics(t *testing.T) {
	i := &inbox{}
	for n := range 100 {
		i.at = nil
		var topics []int
		for k := range 1000 {
			topics = append(topics, 1000*n+k)
		}
		i.split(crowd(append(topics, topics[999], topics[999])...))
	}
	_, without := i.topics(nil)
	if len(without) == 0 || len(without) > laneTopicsMax {
		t.Errorf("%d topics are in lanes, want 1 to %d", len(without), laneTopicsMax)
	}
	if last := (eventlog.TopicID{999 >> 8, 999 & 255}); !slices.Contains(without, last) {
		t.Error("the topic with the most rows is in no lane")
	}
}

// What was moved does not wait: a lane waits since what it moved last, at most.
func TestTheAgeOfABacklogIsNotThatOfRowsThatWereMoved(t *testing.T) {
	i := &inbox{mark: bookmark{goal: "of a round with more"}}
	i.split(crowd(7, 7, 7))
	if got := i.oldest(&chunk{}); got.id != 3 || !got.time.Equal(time.Unix(3, 0)) {
		t.Errorf("a new lane waits since row %d of %v, want row 3, the last that was moved", got.id, got.time.Unix())
	}
	i.at = i.lanes[0]
	c := crowd(7, 7, 7, 7, 7)
	i.pass(c)
	if got := i.oldest(&chunk{}); got.id != 5 {
		t.Errorf("a lane that moved row 5 waits since row %d", got.id)
	}
	if got := i.oldest(crowd(8)); got.id != 1 {
		t.Errorf("row 1 was found and is not moved, and the oldest is row %d", got.id)
	}
}

// The main lane has a backlog behind it that it leaves to a lane of its own. No look reads all of
// that.
func TestALookExaminesABoundedPartOfABacklog(t *testing.T) {
	const backlog, looks = 60_000, 4
	address := pgtest.URL(t)
	in := openInbox(t, address)
	in.most, in.span = 500, 2000
	conn := session(t, address)
	run(t, conn, fmt.Sprintf(`SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'bulk ' || n FROM generate_series(1, %d) n))`, backlog))
	for range looks {
		if len(in.look()) > 0 {
			in.move()
		}
	}
	in.store.Close() // its counts are told
	await(t, address, `SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND application_name LIKE 'weir%' AND pid <> pg_backend_pid()`)
	read, err := strconv.Atoi(pgtest.Value(t, address, `SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'weir.inbox'::regclass`))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d looks and moves read %d rows", looks, read)
	if most := looks * (2000 + 500 + 500); read > most {
		t.Errorf("%d looks and moves read %d rows, want at most %d", looks, read, most)
	}
}

// Most ids are of rows long gone. Looks do not go through them span by span: not to what was
// published last, and not to what was open for long.
func TestLooksDoNotGoThroughIdsLongGone(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	in.span = 10
	conn, early := session(t, address), session(t, address)
	gap := func(to int) { run(t, conn, fmt.Sprintf(`SELECT setval('weir.inbox_id_seq', %d)`, to)) }
	polls := func(want string) {
		t.Helper()
		for n := 1; ; n++ {
			c, err := in.poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if in.chunk = c; len(c.rows) == 0 {
				in.pass(c)
			} else if got := string(c.rows[0].value); got == want {
				in.move()
				return
			} else {
				t.Fatalf("found %q, want %q", got, want)
			}
			if n == 5 {
				t.Fatalf("%d polls did not find %q", n, want)
			}
		}
	}
	gap(1_000)
	run(t, early, `BEGIN; `+tell("early"))
	gap(1_000_000)
	run(t, conn, tell("a"))
	polls("a")
	gap(2_000_000)
	run(t, conn, tell("b"))
	polls("b")
	gap(3_000_000)
	run(t, early, tell("late")+`; COMMIT`)
	polls("early")
	polls("late")
	gap(4_000_000)
	run(t, conn, tell("c"))
	in.rewind()
	polls("c")
	in.expect()
}

// docs/sql.md: "so do later events of that partition; other partitions are not affected"
func TestAnEventThatCannotBeMovedHoldsUpItsPartitionAlone(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	topic, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.door.store.Commit(t.Context(), []eventlog.Entry{{Forgets: topic.Partitions[:1]}}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'bad', partition => 0)`)
	if _, err := m.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'good', partition => 1)`)
	if _, err := m.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := pgtest.Value(t, address, `SELECT string_agg(convert_from(value, 'UTF8'), ' ' ORDER BY id) FROM weir.inbox`); got != "bad" {
		t.Errorf("in the inbox: %q; want those of the one partition, and none of the other", got)
	}
}

// What others wait for is in no lane: acks and requests to create, and topics still to be created.
func TestWhatOthersWaitForIsInNoLane(t *testing.T) {
	i := &inbox{made: func(id eventlog.TopicID) bool { return id != eventlog.TopicID{0, 8} }}
	i.split(crowd(0, 8, 0, 8, 7, 0))
	if _, without := i.topics(nil); !slices.Equal(without, []eventlog.TopicID{{0, 7}}) {
		t.Errorf("in lanes: %v", without)
	}
}
