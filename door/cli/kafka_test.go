package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestTopicLifeCycle(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "orders", "--partitions", "3", "--retention", "1h").want(t, exitOK, "created topic orders with 3 partitions")
	weir(t, "", "topic", "create", "orders").want(t, exitFailed, "TOPIC_ALREADY_EXISTS", "--if-not-exists")
	weir(t, "", "topic", "create", "orders", "--if-not-exists").want(t, exitOK, "already exists")
	weir(t, "", "topic", "list").want(t, exitOK, "TOPIC   PARTITIONS\norders  3\n")

	var list []topicRow
	decode(t, weir(t, "", "topic", "list", "--output", "json"), &list)
	if len(list) != 1 || list[0] != (topicRow{"orders", 3, false}) {
		t.Errorf("topic list --output json: %+v", list)
	}

	weir(t, "", "topic", "alter", "orders", "--retention", "2h", "--partitions", "4").want(t, exitOK, "changed 1 setting", "has 4 partitions now")
	weir(t, "a\nb\n", "produce", "orders", "--partition", "2").want(t, exitOK, "2 records acknowledged")
	var picture topicPicture
	decode(t, weir(t, "", "topic", "describe", "orders", "--output", "json"), &picture)
	if len(picture.Partitions) != 4 || picture.Partitions[2].Next != 2 || picture.Partitions[2].Records != 2 {
		t.Errorf("topic describe --output json: %+v", picture)
	}
	weir(t, "", "topic", "describe", "orders").want(t, exitOK, "retention.ms  7200000")
	weir(t, "", "topic", "describe", "nothing").want(t, exitFailed, "UNKNOWN_TOPIC_OR_PARTITION", "weir topic list")
	weir(t, "", "topic", "delete", "orders", "--yes").want(t, exitOK, "deleted topic orders")
	weir(t, "", "topic", "delete", "orders", "--yes").want(t, exitFailed, "UNKNOWN_TOPIC_OR_PARTITION")
}

func TestDestroyingNeedsAYes(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "orders").want(t, exitOK)
	weir(t, "a\n", "produce", "orders").want(t, exitOK)
	weir(t, "", "consume", "orders", "--group", "billing").want(t, exitOK, "a\n")

	for _, args := range [][]string{
		{"topic", "delete", "orders"}, {"group", "delete", "billing"}, {"group", "reset", "billing", "--to", "earliest"},
	} {
		weir(t, "orders\nbilling\n", args...).want(t, exitUsage, "nothing was done", "--yes")
		if r := person(t, "no\n", args...); r.code != exitUsage || !strings.Contains(r.err, "nothing was done") {
			t.Errorf("%v with the wrong answer: %+v", args, r)
		}
	}
	weir(t, "", "topic", "list").want(t, exitOK, "orders")
	weir(t, "", "consume", "orders", "--group", "billing").want(t, exitOK)

	if r := person(t, "billing\n", "group", "delete", "billing"); r.code != exitOK || !strings.Contains(r.err, "Type billing to confirm") {
		t.Errorf("group delete with the right answer: %+v", r)
	}
	if r := person(t, "orders\n", "topic", "delete", "orders"); r.code != exitOK {
		t.Errorf("topic delete with the right answer: %+v", r)
	}
}

// person runs weir for somebody who sits at a terminal.
func person(t *testing.T, typed string, args ...string) result {
	t.Helper()
	var out, err strings.Builder
	code := run(t.Context(), "test", args,
		&terminal{in: strings.NewReader(typed), out: &out, err: &err, inTTY: true, outTTY: true, errTTY: true}, nil)
	return result{code, out.String(), err.String()}
}

func TestTextGoesThroughUnchanged(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "lines", "--partitions", "1").want(t, exitOK)
	weir(t, "one\r\n\nthree\tand\x1b[31m\xff\nlast without end", "produce", "lines").want(t, exitOK, "4 records acknowledged")
	if r := weir(t, "", "consume", "lines", "--raw"); r.out != "one\n\nthree\tand\x1b[31m\xff\nlast without end\n" {
		t.Errorf("raw: %q", r.out)
	}
	if r := weir(t, "", "consume", "lines"); r.out != "one\n\nthree\tand\\x1b[31m\\xff\nlast without end\n" {
		t.Errorf("text: %q", r.out)
	}
	if r := weir(t, "", "consume", "lines", "--from", "2", "--max", "1", "--raw"); r.out != "three\tand\x1b[31m\xff\n" {
		t.Errorf("from 2, one record: %q", r.out)
	}
	if r := weir(t, "", "consume", "lines", "--from", "latest"); r.out != "" || r.code != exitOK {
		t.Errorf("from latest: %+v", r)
	}
	weir(t, "", "consume", "lines", "--from", "99").want(t, exitOK, "partition 0 does not have offset 99; reading from offset 4")
	if r := weir(t, "", "consume", "lines", "--from", "-1h"); strings.Count(r.out, "\n") != 4 {
		t.Errorf("from an hour ago: %q", r.out)
	}
	weir(t, "", "consume", "lines", "--partition", "7").want(t, exitFailed, "no partition 7; it has 1, numbered from 0")
	weir(t, "", "consume", "nothing").want(t, exitFailed, "UNKNOWN_TOPIC_OR_PARTITION")
}

func TestKeysAreCutAndJoined(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "pairs", "--partitions", "1").want(t, exitOK)
	weir(t, "a=1\nb=2=3\n", "produce", "pairs", "--key-separator", "=").want(t, exitOK)
	weir(t, "4\n", "produce", "pairs", "--key", "c", "--header", "from=test", "--compression", "zstd").want(t, exitOK)
	if r := weir(t, "", "consume", "pairs", "--key-separator", ":"); r.out != "a:1\nb:2=3\nc:4\n" {
		t.Errorf("pairs: %q", r.out)
	}
	weir(t, "", "consume", "pairs", "--output", "json").want(t, exitOK, `"headers":[{"name":"from","value":"test"}]`)
	weir(t, "x=1\ny\nz=3\n", "produce", "pairs", "--key-separator", "=").want(t, exitFailed,
		`line 2: it does not have the key separator "="`, "1 record acknowledged: all lines before it")
}

func TestJSONMakesTheRoundTrip(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "from", "--partitions", "2").want(t, exitOK)
	weir(t, "", "topic", "create", "to", "--partitions", "2").want(t, exitOK)
	lines := `{"partition":1,"timestamp":"2026-01-31T08:00:00.123Z","key":"k","value":"a\u001b[0m<é>"}
{"partition":1,"timestamp":1769846400124,"key_b64":"//8=","value_b64":"AAH/"}

{"partition":1,"value":"","headers":[{"name":"h","value":"1"},{"name":"h","value_b64":"/w=="},{"name":"null"}]}
{"partition":1,"key":"tombstone"}
{"partition":1,"key":"","value":null}
{"partition":1,"value":"names","headers":[{"name_b64":"/w==","value":"not UTF-8"},{"name":"","value":"empty"}]}
{"partition":1,"timestamp":0,"value":"the first"}
{"partition":1,"timestamp":"2262-04-11T23:47:16.854Z","value":"the last that kgo knows"}
{"partition":1,"timestamp":"2262-04-11T23:47:16.855Z","value":"the next"}
{"partition":1,"timestamp":"2400-02-29T12:00:00.000Z","key_b64":"/w==","headers":[{"name":"h","value":"1"}]}
{"partition":1,"timestamp":"9999-12-31T23:59:59.999Z","value":"the last"}
{"partition":1,"value":"after it"}
`
	weir(t, lines, "produce", "from", "--input", "json", "--compression", "zstd").want(t, exitOK, "12 records acknowledged")
	first := weir(t, "", "consume", "from", "--output", "json")
	first.want(t, exitOK, `"timestamp":"2026-01-31T08:00:00.123Z","key":"k","value":"a\u001b[0m<é>"}`,
		`"timestamp":"2026-01-31T08:00:00.124Z","key_b64":"//8=","value_b64":"AAH/"}`,
		`"value":"","headers":[{"name":"h","value":"1"},{"name":"h","value_b64":"/w=="},{"name":"null"}]}`,
		`"headers":[{"name_b64":"/w==","value":"not UTF-8"},{"name":"","value":"empty"}]}`,
		`"timestamp":"1970-01-01T00:00:00.000Z","value":"the first"}`,
		`"timestamp":"2262-04-11T23:47:16.855Z","value":"the next"}`,
		`"timestamp":"2400-02-29T12:00:00.000Z","key_b64":"/w==","headers":[{"name":"h","value":"1"}]}`,
		`"timestamp":"9999-12-31T23:59:59.999Z","value":"the last"}`)
	weir(t, first.out, "produce", "to", "--input", "json").want(t, exitOK, "12 records acknowledged")
	second := weir(t, "", "consume", "to", "--output", "json")
	if copied := strings.ReplaceAll(second.out, `"topic":"to"`, `"topic":"from"`); copied != first.out {
		t.Errorf("the copy differs:\n%s\n%s", first.out, second.out)
	}
}

// A time that the broker refuses is an error, and is never stored as another one.
func TestTimesAreStoredAsTheyAreOrNotAtAll(t *testing.T) {
	serve(t, "--store", "memory:")
	weir(t, "", "topic", "create", "times", "--partitions", "1").want(t, exitOK)
	weir(t, `{"value":"a"}`+"\n"+`{"timestamp":253402300800000}`, "produce", "times", "--input", "json").want(t, exitFailed, "line 2", "1 record acknowledged")
	weir(t, `{"timestamp":253402300799999,"partition":1}`, "produce", "times", "--input", "json").want(t, exitFailed, "line 1", "no partition 1", "0 records acknowledged")
	weir(t, `{"timestamp":253402300799999,"key":"k"}`, "produce", "times", "--input", "json").want(t, exitOK, "1 record acknowledged")
	weir(t, "", "topic", "create", "keys", "--partitions", "16").want(t, exitOK)
	weir(t, `{"key":"k","timestamp":253402300799999}`+"\n"+`{"key":"k"}`, "produce", "keys", "--input", "json").want(t, exitOK)
	lines := strings.Split(weir(t, "", "consume", "keys", "--output", "json").out, `,"offset"`)
	if len(lines) != 3 || !strings.HasSuffix(lines[1], lines[0]) {
		t.Errorf("two records of a key are in two partitions: %q", lines)
	}
	for _, from := range []string{"1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "-1000000h", "1970-01-01T00:00:00Z"} {
		weir(t, "", "consume", "times", "--output", "json", "--from", from).want(t, exitOK, `"value":"a"`, `"timestamp":"9999-12-31T23:59:59.999Z"`)
	}
	weir(t, "", "consume", "times", "--group", "g").want(t, exitOK, "a\n")
	weir(t, "", "group", "reset", "g", "--topic", "times", "--to", "1969-07-20T20:17:40Z", "--yes").want(t, exitOK)
	weir(t, "", "consume", "times", "--group", "g").want(t, exitOK, "a\n")
}

func TestProduceStopsAtTheFirstBadLine(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "strict", "--partitions", "1").want(t, exitOK)
	for _, c := range []struct{ name, stdin, text string }{
		{"half a line", `{"value":"a"}` + "\n" + `{"value":"b`, "line 2: it is not a JSON record: the JSON value is incomplete"},
		{"unknown field", `{"value":"a"}` + "\n" + `{"valeu":"b"}`, `line 2: it is not a JSON record: json: unknown field "valeu"`},
		{"not UTF-8", `{"value":"a"}` + "\n{\"value\":\"\xff\"}", "line 2: it is not UTF-8"},
		{"two records", `{"value":"a"}` + "\n" + `{"value":"b"} {}`, "line 2: there is more after the record"},
		{"bad base64", `{"value":"a"}` + "\n" + `{"value_b64":"%"}`, "line 2: value_b64: illegal base64"},
		{"both", `{"value":"a"}` + "\n" + `{"key":"b","key_b64":"YQ=="}`, "line 2: key and key_b64 are both given"},
		{"negative partition", `{"value":"a"}` + "\n" + `{"partition":-1}`, "line 2: partition -1 is negative"},
		{"bad time", `{"value":"a"}` + "\n" + `{"timestamp":"now"}`, `line 2: it is not a JSON record: timestamp "now"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			weir(t, c.stdin, "produce", "strict", "--input", "json").want(t, exitFailed, c.text, "1 record acknowledged")
		})
	}
	weir(t, `{"value":"a","partition":5}`, "produce", "strict", "--input", "json").want(t, exitFailed, "line 1", "0 records acknowledged")
	weir(t, "a\n", "produce", "nothing").want(t, exitFailed, "line 1", "UNKNOWN_TOPIC_OR_PARTITION")
}

// A name that is not allowed is told as that, and nothing else is.
func TestTheErrorSaysWhyATopicIsInvalid(t *testing.T) {
	t.Setenv("WEIR_SERVER", "http://"+serve(t, "--store", "memory:").http)
	weir(t, "", "stream", "category", "create", "order").want(t, exitOK)
	r := weir(t, "a\n", "produce", "order")
	if r.want(t, exitFailed, "INVALID_TOPIC_EXCEPTION", "weir stream append"); strings.Contains(r.err, "1 to 249") {
		t.Errorf("the name of a category is refused: %s", r.err)
	}
	weir(t, "a\n", "produce", "a b").want(t, exitFailed, "INVALID_TOPIC_EXCEPTION", "1 to 249 letters")
	weir(t, "", "topic", "create", "a.b").want(t, exitOK)
	r = weir(t, "", "topic", "create", "a_b")
	if r.want(t, exitFailed, "collides"); strings.Contains(r.err, "1 to 249") {
		t.Errorf("the letters of a name that collides are refused: %s", r.err)
	}
}

// Many lines make batches as large as the topic allows, and not larger.
func TestABatchOfLinesFitsIntoTheTopic(t *testing.T) {
	serve(t, "--store", "memory:")
	weir(t, "", "topic", "create", "small", "--partitions", "1", "--config", "max.message.bytes=20000").want(t, exitOK)
	lines := strings.Repeat(strings.Repeat("x", 999)+"\n", 5000)
	for _, topic := range []string{"small", "usual"} {
		weir(t, lines, "produce", topic).want(t, exitOK, "5000 records acknowledged")
	}
	weir(t, "", "topic", "create", "tiny", "--config", "max.message.bytes=500").want(t, exitOK)
	weir(t, "a\n", "produce", "tiny").want(t, exitOK, "1 record acknowledged")
	weir(t, strings.Repeat("x", 21000)+"\n", "produce", "small", "--line-limit", "4MiB").want(t, exitFailed, "line 1", "MESSAGE_TOO_LARGE", "weir topic alter")
}

func TestEndlessLineCostsNoMemory(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "long", "--partitions", "1").want(t, exitOK)
	var out, err strings.Builder
	var read zeros
	stdin := io.MultiReader(strings.NewReader("first\n"), &read)
	code := run(t.Context(), "test", []string{"produce", "long", "--line-limit", "64KiB"}, &terminal{in: stdin, out: &out, err: &err}, nil)
	result{code, out.String(), err.String()}.want(t, exitFailed,
		"line 2: it is longer than the limit of 65536 bytes", "1 record acknowledged: all lines before it", "--line-limit")
	if read > 256<<10 {
		t.Errorf("%d bytes were read of a line that may have 65536", read)
	}
}

// zeros never ends and never holds the end of a line. It counts what was read.
type zeros int

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	*z += zeros(len(p))
	return len(p), nil
}

// A topic that grows while it is read would else never end.
func TestPlanEndsWhereTheTopicEndedAtTheBeginning(t *testing.T) {
	p := plan{topic: "orders", dealt: true,
		next: map[int32]int64{0: 5, 1: 0}, until: map[int32]int64{0: 7, 1: 0}, ours: map[int32]bool{0: true, 1: true}}
	for _, c := range []struct {
		partition    int32
		offset, rest int64
		planned      bool
	}{
		{0, 5, 1, true},
		{1, 0, 1, false}, // came later
		{0, 6, 0, true},
		{0, 7, 0, false},
	} {
		planned := p.take(&kgo.Record{Partition: c.partition, Offset: c.offset})
		if rest := p.rest(); planned != c.planned || rest != c.rest {
			t.Errorf("%d/%d: planned %v with %d to go, want %v with %d", c.partition, c.offset, planned, rest, c.planned, c.rest)
		}
	}
}

func TestGroupReadsOnceAndKnowsItsLag(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "orders").want(t, exitOK)
	weir(t, "", "topic", "create", "other").want(t, exitOK)
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "key-%d=%d\n", i, i)
	}
	weir(t, lines.String(), "produce", "orders", "--key-separator", "=").want(t, exitOK)
	if r := weir(t, "", "consume", "orders", "--group", "billing", "--max", "30"); strings.Count(r.out, "\n") != 30 {
		t.Errorf("first run: %d lines, want 30: %+v", strings.Count(r.out, "\n"), r)
	}
	var picture groupPicture
	decode(t, weir(t, "", "group", "describe", "billing", "--output", "json"), &picture)
	if picture.Lag != 70 || picture.State != "Empty" {
		t.Errorf("after 30 of 100: %+v", picture)
	}
	if r := weir(t, "", "consume", "orders", "--group", "billing"); strings.Count(r.out, "\n") != 70 {
		t.Errorf("second run: %d lines, want 70: %+v", strings.Count(r.out, "\n"), r)
	}
	weir(t, "", "group", "describe", "billing").want(t, exitOK, "group billing: empty, 0 members, lag 0", "TOPIC   PARTITION  COMMITTED")
	weir(t, "", "group", "list").want(t, exitOK, "GROUP    STATE", "billing  Empty")
	var list []groupRow
	decode(t, weir(t, "", "group", "list", "--output", "json"), &list)
	if len(list) != 1 || list[0].Name != "billing" {
		t.Errorf("group list --output json: %+v", list)
	}

	weir(t, "", "group", "reset", "billing", "--to", "earliest", "--dry-run").want(t, exitOK, "TOPIC   PARTITION  BEFORE  AFTER")
	if r := weir(t, "", "consume", "orders", "--group", "billing"); r.out != "" || r.code != exitOK {
		t.Errorf("a dry run moved the group: %+v", r)
	}
	var moves []move
	decode(t, weir(t, "", "group", "reset", "billing", "--to", "10", "--yes", "--output", "json"), &moves)
	if len(moves) != 2 || moves[0].After != 10 {
		t.Errorf("reset to 10: %+v", moves)
	}
	if r := weir(t, "", "consume", "orders", "--group", "billing"); strings.Count(r.out, "\n") != 80 {
		t.Errorf("after the reset: %d lines, want 80", strings.Count(r.out, "\n"))
	}
	weir(t, "", "group", "reset", "stranger", "--to", "earliest", "--yes").want(t, exitFailed, "has committed no offsets", "--topic")
	weir(t, "", "group", "reset", "stranger", "--to", "latest", "--topic", "other", "--yes").want(t, exitOK, "other  0")
	weir(t, "", "group", "delete", "billing", "--yes").want(t, exitOK, "deleted group billing")
	weir(t, "", "group", "describe", "billing").want(t, exitFailed, "GROUP_ID_NOT_FOUND", "weir group list")
}

// Brokers do not find groups of the consumer protocol (KIP-848) among the classic ones.
func TestAGroupOfTheConsumerProtocolIsDescribed(t *testing.T) {
	address := otherBroker(t)
	weir(t, "", "topic", "create", "orders").want(t, exitOK)
	weir(t, "1\n2\n3\n", "produce", "orders").want(t, exitOK)
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.ClientID("till"),
		kgo.ServerSideBalancer(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for got := 0; got < 3; {
		got += cl.PollFetches(t.Context()).NumRecords()
	}
	weir(t, "", "group", "describe", "billing").want(t, exitOK, "group billing: stable, 1 member")
	weir(t, "", "group", "reset", "billing", "--to", "latest", "--topic", "orders", "--yes").want(t, exitFailed, "the group has 1 member")
	if err := cl.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	var picture groupPicture
	decode(t, weir(t, "", "group", "describe", "billing", "--output", "json"), &picture)
	if picture.Lag != 0 || len(picture.Members) != 1 || picture.Members[0].Client != "till" || len(picture.Partitions) == 0 {
		t.Errorf("after the commit: %+v", picture)
	}
}

func TestGroupBeginsWhereItIsTold(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "orders", "--partitions", "1").want(t, exitOK)
	weir(t, "a\nb\nc\n", "produce", "orders").want(t, exitOK)
	if r := weir(t, "", "consume", "orders", "--group", "late", "--from", "2"); r.out != "c\n" {
		t.Errorf("a new group from 2: %+v", r)
	}
	weir(t, "d\n", "produce", "orders").want(t, exitOK)
	if r := weir(t, "", "consume", "orders", "--group", "late", "--from", "earliest"); r.out != "d\n" {
		t.Errorf("a group that has committed goes on: %+v", r)
	}
}

func TestGroupWithMembersIsNotReset(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "orders").want(t, exitOK)
	weir(t, "a\n", "produce", "orders").want(t, exitOK)
	ctx, follower := t.Context(), make(chan int)
	seen := make(chan struct{}, 16)
	stdout := &waitFor{text: "a\n", seen: func() { seen <- struct{}{} }}
	go func() {
		follower <- run(ctx, "test", []string{"consume", "orders", "--group", "busy", "--follow", "--max", "2"},
			&terminal{out: stdout, err: io.Discard}, nil)
	}()
	<-seen
	weir(t, "", "group", "reset", "busy", "--to", "latest", "--topic", "orders", "--yes").want(t, exitFailed, "the group has 1 member", "stop the group's members")
	weir(t, "", "group", "delete", "busy", "--yes").want(t, exitFailed, "NON_EMPTY_GROUP")
	weir(t, "b\n", "produce", "orders").want(t, exitOK)
	if code := <-follower; code != exitOK {
		t.Errorf("the member ended with %d", code)
	}
}

func decode(t *testing.T, r result, into any) {
	t.Helper()
	r.want(t, exitOK)
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
}
