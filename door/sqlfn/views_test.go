package sqlfn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/group"
)

// text gives what a query returns, a line a row.
func (r *reader) text(sql string, args ...any) string {
	r.t.Helper()
	rows, err := r.Query(r.t.Context(), "SELECT x::text FROM ("+sql+") AS x", args...)
	if err != nil {
		r.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}

func TestTopicsAndPartitionsShowWhatTheLogHolds(t *testing.T) {
	r := startReader(t)
	r.topic("empty", 1, nil)
	topic := r.topic("orders", 3, map[string]string{"retention.ms": "60000"})
	r.fill(topic.Partitions[0], 5)
	r.fill(topic.Partitions[2], 2, 3)
	if err := r.log.Trim(t.Context(), topic.Partitions[2], 2); err != nil {
		t.Fatal(err)
	}
	bounds, err := r.log.Bounds(t.Context(), topic.Partitions...)
	if err != nil {
		t.Fatal(err)
	}
	var partitions []string
	bytes := int64(0)
	for i, b := range bounds {
		bytes += b.Bounds.Bytes
		partitions = append(partitions, fmt.Sprintf("(orders,%d,%d,%d,%d,%d,%d)", i,
			b.Bounds.First, b.Bounds.Next, b.Bounds.Next-b.Bounds.First, b.Bounds.Bytes, topic.Partitions[i]))
	}
	if got, want := r.text(`SELECT * FROM weir.partitions WHERE topic = 'orders' ORDER BY partition`), strings.Join(partitions, "\n"); got != want {
		t.Errorf("partitions\n%s\nwant\n%s", got, want)
	}
	want := fmt.Sprintf("(empty,1,0,0,{})\n(orders,3,8,%d,\"{\"\"retention.ms\"\": \"\"60000\"\"}\")", bytes)
	if got := r.text(`SELECT name, partitions, records, bytes, settings FROM weir.topics ORDER BY name`); got != want {
		t.Errorf("topics\n%s\nwant\n%s", got, want)
	}
	if got := r.text(`SELECT replace(id::text, '-', '') FROM weir.topics WHERE name = 'orders'`); got != "("+topic.ID.String()+")" {
		t.Errorf("id %s, want %s", got, topic.ID)
	}
	if err := r.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if got := r.text(`SELECT name FROM weir.topics`) + r.text(`SELECT topic FROM weir.partitions`); got != "(empty)(empty)" {
		t.Errorf("after one was deleted there are %s", got)
	}
}

// A row of the store has one version in a snapshot, though many lie about: the log writes some keys
// thousands of times.
func TestViewsShowOneVersionOfEverything(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	looks := connect(t, r.url) // keeps all versions alive
	tx, err := looks.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	const before = `SELECT sum(records)::bigint FROM weir.topics`
	var n int64
	if err := tx.QueryRow(t.Context(), before).Scan(&n); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	for range 200 { // several turns
		r.fill(p, 1)
		r.commit("g", "t", 0, 7)
	}
	if got := one[int64](r, `SELECT sum(records)::bigint FROM weir.topics`); got != 200 {
		t.Errorf("%d records, want 200", got)
	}
	if got := one[int64](r, `SELECT count(*) FROM weir.groups`); got != 1 {
		t.Errorf("%d rows of one group with one offset", got)
	}
	if err := tx.QueryRow(t.Context(), before).Scan(&n); err != nil || n != 0 {
		t.Errorf("a snapshot of before sees %d records, %v", n, err)
	}
}

// commit commits an offset as a tool does.
func (r *reader) commit(name, topic string, partition int32, offset eventlog.Offset) {
	r.t.Helper()
	at, err := r.log.Topic(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	errs, err := r.groups.Commit(r.t.Context(), group.Commit{Group: name, Generation: -1, Offsets: []group.Committed{{
		TopicPartition: group.TopicPartition{Topic: at.ID, Partition: partition}, Name: topic, Offset: offset, LeaderEpoch: -1, Metadata: "odd \x00 words",
	}}})
	if err != nil || errs[0] != nil {
		r.t.Fatal(err, errs)
	}
}

func TestGroupsShowTheLagThatTheCoordinatorTells(t *testing.T) {
	r := startReader(t)
	topic := r.topic("t", 4, nil)
	for _, p := range topic.Partitions {
		r.fill(p, 10)
	}
	odd := []string{"plain", "a/b", "100% Ærø ☂", "", `'; DROP TABLE x;--`, "zero \x00 byte", "\xff\xfe"}
	for i, name := range odd {
		if name != "" {
			r.commit(name, "t", int32(i%4), eventlog.Offset(i))
		}
	}
	r.commit("ahead", "t", 0, 99)
	r.commit("behind", "t", 1, 2)
	if err := r.log.Trim(t.Context(), topic.Partitions[1], 5); err != nil { // of a group's backlog, some is gone
		t.Fatal(err)
	}
	_, lags, err := r.groups.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, l := range lags {
		name := strings.NewReplacer("zero \x00 byte", "zero%20%00%20byte", "\xff\xfe", "%FF%FE").Replace(l.Group) // no text: shown as the key has it
		want = append(want, fmt.Sprint(name, "|", l.Name, "|", l.Partition, "|", l.Offset, "|", l.Records))
	}
	slices.Sort(want)
	got := strings.Split(r.text(`SELECT grp || '|' || topic || '|' || partition || '|' || committed_offset || '|' || lag FROM weir.groups`), "\n")
	for i := range got {
		got[i] = strings.Trim(strings.NewReplacer(`\\`, `\`, `""`, `"`).Replace(got[i]), `()"`)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("groups\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := r.log.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	r.topic("t", 4, nil) // another of the same name
	if got := r.text(`SELECT grp, topic FROM weir.groups WHERE grp = 'plain'`); got != "(plain,)" {
		t.Errorf("with its topic gone a group shows as %s", got)
	}
}

func TestGroupsShowTheMembersAndWhatTheyRead(t *testing.T) {
	r := startReader(t)
	topic := r.topic("t", 2, nil)
	r.fill(topic.Partitions[0], 10)
	r.fill(topic.Partitions[1], 4)
	assigned := make(chan struct{}, 9)
	member := r.client(kgo.ClientID("worker\x00"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { assigned <- struct{}{} }))
	<-assigned
	first := &kgo.Record{Topic: "t", Partition: 0, Offset: 6}
	if err := member.CommitRecords(r.limit(), first); err != nil {
		t.Fatal(err)
	}
	described, err := kadm.NewClient(r.client()).Lag(r.limit(), "g") // what weir group describe shows
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, l := range described["g"].Lag.Sorted() {
		committed := fmt.Sprint(l.Commit.At)
		if l.Commit.At < 0 {
			committed = ""
		}
		want = append(want, fmt.Sprintf("(g,%s,1,t,%d,%s,%d,%d)", described["g"].State, l.Partition, committed, l.End.Offset, l.Lag))
	}
	got := r.text(`SELECT grp, state, members, topic, partition, committed_offset, end_offset, lag FROM weir.groups ORDER BY partition`)
	if got != strings.Join(want, "\n") || len(want) != 2 {
		t.Errorf("groups\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if got := r.text(`SELECT DISTINCT generation > 0, member FROM weir.groups`); got != "(t,worker\ufffd)" {
		t.Errorf("generation and member: %q", got)
	}
	member.Close()
	if got := r.text(`SELECT DISTINCT state, members, topic, partition, member FROM weir.groups`); got != "(Empty,0,t,0,)" {
		t.Errorf("after its member left the group shows as %s", got)
	}
}

func TestGroupsShowPeersUntilTheyAreDead(t *testing.T) {
	r := startReader(t)
	topic := r.topic("t", 3, nil)
	r.fill(topic.Partitions[1], 4)
	for _, client := range []string{"a\x00", "b\x00"} { // PostgreSQL's text cannot hold the zero character; the second waits for what the first has
		if _, err := group.New(r.log, group.Config{}).JoinPeer(t.Context(), group.PeerConfig{Group: "g/h", Topics: []string{"t"}, Client: client, Session: 8 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	same := func(state group.State, want string) {
		t.Helper()
		stats, _, err := r.groups.Stats(t.Context())
		// A process that has just begun waits for half of a session before it takes the silent for
		// dead.
		for start := time.Now(); err == nil && stats[0].State != state && time.Since(start) < time.Minute; {
			stats, _, err = r.groups.Stats(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, told := r.text(`SELECT DISTINCT grp, state, members FROM weir.groups`), fmt.Sprintf("(%s,%s,%d)", stats[0].Group, stats[0].State, stats[0].Members); got != told {
			t.Errorf("the group shows as %s, and the coordinator tells %s", got, told)
		}
		if got := r.text(`SELECT topic, partition, member, committed_offset, end_offset, lag FROM weir.groups ORDER BY partition`); got != want {
			t.Errorf("groups\n%s\nwant\n%s", got, want)
		}
	}
	same(group.Stable, "(t,0,a\ufffd,,0,0)\n(t,1,a\ufffd,,4,4)\n(t,2,a\ufffd,,0,0)") // it has committed nothing
	r.exec(`UPDATE weir.state SET put_at = put_at - interval '2 minutes' WHERE key LIKE 'group/member/%'`)
	same(group.Empty, "(,,,,,)")
}

// What roles_test.go tries on a log with next to nothing in it, on all that there can be: a
// function that is called for odd rows only needs a right, too.
func TestAReaderSeesAllThatTheOwnerSees(t *testing.T) {
	r := startReader(t)
	topic := r.topic("t", 2, nil)
	producer := r.client(kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := producer.ProduceSync(r.limit(), odd()...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	raw, err := batch.Seal(make([]batch.Record, 3), batch.Gzip)
	if err != nil {
		t.Fatal(err)
	}
	r.put(topic.Partitions[1], raw)
	r.exec(`SELECT weir.roll(false, 0, '0')`)
	r.fill(topic.Partitions[1], 10)
	r.commit("100% ☂", "t", 1, 3)
	r.commit("\xff", "t", 0, 1)
	for _, role := range []string{"weir_reader", "weir_consumer"} {
		as := *r
		as.Conn = connect(t, login(t, r.url, role))
		for _, sql := range []string{
			`SELECT * FROM weir.events('t')`, `SELECT * FROM weir.events('t', (SELECT 1))`, `SELECT * FROM weir.last_events('t')`,
			`SELECT * FROM weir.topics`, `SELECT * FROM weir.partitions`, `SELECT * FROM weir.groups`,
		} {
			if got, want := as.text(sql), r.text(sql); got != want || want == "" {
				t.Errorf("%s as %s:\n%s\nwant\n%s", sql, role, got, want)
			}
		}
	}
}
