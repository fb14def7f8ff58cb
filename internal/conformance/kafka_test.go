package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSettingThatWeirLacksIsNamed(t *testing.T) {
	q := question{
		Brokers: 2, Security: "PLAINTEXT",
		Properties: map[string]string{"num.partitions": "5", "auto.create.topics.enable": "false", "delete.topic.enable": "true", "controlled.shutdown.enable": "true"},
		PerBroker:  map[int]map[string]string{1: {"broker.rack": "b", "num.partitions": "6"}},
	}
	flags, lacks := translate("ATest", q)
	if want := []string{"--no-auto-create", "--partitions=5"}; lacks != "" || !slices.Equal(flags[0], want) {
		t.Errorf("the flags of broker 0 are %q, want %q; it lacks %q", flags[0], want, lacks)
	}
	if want := []string{"--no-auto-create", "--rack=b", "--partitions=6"}; !slices.Equal(flags[1], want) {
		t.Errorf("the flags of broker 1 are %q, want %q", flags[1], want)
	}
	q.Properties["delete.topic.enable"] = "false"
	if _, lacks := translate("ATest", q); lacks != "the broker's property delete.topic.enable=false" {
		t.Errorf("it lacks %q", lacks)
	}
}

func TestCasesOfAMethodAreNumberedFrom1(t *testing.T) {
	cases := []kafkaCase{{Name: "testA [2]"}, {Name: "testB [2] tag"}, {Name: "testB [4]"}}
	renumber(cases)
	if got := []string{cases[0].Name, cases[1].Name, cases[2].Name}; !slices.Equal(got, []string{"testA", "testB [1] tag", "testB [2]"}) {
		t.Errorf("they are called %q", got)
	}
}

// aKafkaRun has a case of each kind.
func aKafkaRun(t *testing.T) *kafkaResult {
	t.Helper()
	kafkaNeeds["clients.ATest#testTransaction"] = "transactions"
	t.Cleanup(func() { delete(kafkaNeeds, "clients.ATest#testTransaction") })
	return &kafkaResult{kafkaModule: kafkaClients, version: "4", classes: map[string]*kafkaClass{
		"clients.ATest": {Commit: "c1", Took: 2 * time.Second, Cases: []kafkaCase{
			{Name: "testFails", Result: failed, Reason: "expected <1>"}, {Name: "testInside", Result: internals, Reason: "broker internals: KafkaBroker.logManager"},
			{Name: "testNext [1] exactly_once_v2", Result: notRun, Reason: "next: transactions"},
			{Name: "testMany [1]", Result: passed}, {Name: "testMany [2]", Result: passed}, {Name: "testMany [3]", Result: passed}, {Name: "testMany [4]", Result: failed, Reason: "late"},
			{Name: "testMany [5]", Result: passed}, {Name: "testMany [6]", Result: passed}, {Name: "testMany [7]", Result: passed}, {Name: "testMany [8]", Result: passed},
			{Name: "testOff", Result: disabled}, {Name: "testPasses", Result: passed}, {Name: "testTransaction [1]", Result: failed, Reason: "no such request"}, {Name: "testTransaction [2]", Result: passed},
		}},
		"clients.BTest":     {Commit: "c1", Took: time.Second, Cases: []kafkaCase{{Name: "testPasses", Result: passed}}},
		"clients.CTest":     {Commit: "c2", Took: time.Second, Cases: []kafkaCase{{Name: "testPasses", Result: passed}}},
		"clients.LaterTest": nil,
		"clients.ShareTest": {Cases: []kafkaCase{{Name: wholeClass, Result: notRun, Reason: "share groups"}}},
	}}
}

func TestOnlyACaseWithoutAReasonIsBad(t *testing.T) {
	if bad := summarizeKafka(io.Discard, aKafkaRun(t)); bad != 2 {
		t.Errorf("%d are bad, want 2", bad)
	}
}

func TestKafkaDocumentListsEveryCase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k.md")
	if err := writeKafkaDocument(path, aKafkaRun(t)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| passed | 11 |", "| failed | 2 |", "| 2 cases, and 1 classes that were not run |", "| not run yet | 1 classes: LaterTest |",
		"| weir | c1; CTest: c2 |", "| 4s |", "| testNext [1] exactly_once_v2 | not run: next: transactions |",
		"| testMany, 7 cases | pass |\n| testMany [4] | **fail**: late |\n",
		"| disabled by Kafka itself | 1 |", "| testOff | disabled by Kafka |",
		"| testFails | **fail**: expected &lt;1> |", "| testInside | internals: KafkaBroker.logManager |", "| testPasses | pass |",
		"| testTransaction [1] | differs: transactions |", "| testTransaction [2] | pass |", "## ShareTest\n\nNot run: share groups.",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document does not say %q:\n%s", want, text)
		}
	}
}

func TestResultOfAClassIsKept(t *testing.T) {
	dir := t.TempDir()
	if c, err := keptResult(dir, "clients.ATest"); c != nil || err != nil {
		t.Fatalf("a class that was not run has the result %v, %v", c, err)
	}
	ran := aKafkaRun(t).classes["clients.ATest"]
	if err := keepResult(dir, "clients.ATest", ran); err != nil {
		t.Fatal(err)
	}
	kept, err := keptResult(dir, "clients.ATest")
	if err != nil {
		t.Fatal(err)
	}
	if kept.Commit != ran.Commit || kept.Took != ran.Took || !slices.Equal(kept.Cases, ran.Cases) {
		t.Errorf("kept is %v, want %v", kept, ran)
	}
}

func TestCaseThatAsksForWhatIsNextIsNotRun(t *testing.T) {
	kafkaNeeds["streams.ATest#shouldCommit"] = transactions
	t.Cleanup(func() { delete(kafkaNeeds, "streams.ATest#shouldCommit") })
	c := &control{class: "streams.ATest"}
	for _, test := range []struct {
		method    string
		arguments map[string]string
		want      string
	}{
		{"shouldRead", map[string]string{"useNewProtocol": "true"}, streamsGroups},
		{"shouldRead", map[string]string{"useNewProtocol": "false", "withCache": "true"}, ""},
		{"shouldRead", map[string]string{"groupProtocol": "streams"}, streamsGroups},
		{"shouldRead", map[string]string{"groupProtocolConfig": "{group.protocol=STREAMS}"}, streamsGroups},
		{"shouldRead", map[string]string{"groupProtocol": "classic", "guarantee": "at_least_once"}, ""},
		{"shouldRead", map[string]string{"guarantee": "exactly_once_v2"}, transactions},
		{"shouldCommit", nil, transactions},
	} {
		if got := c.lacking(question{Method: test.method, Arguments: test.arguments}); got != test.want {
			t.Errorf("%s(%q) lacks %q, want %q", test.method, test.arguments, got, test.want)
		}
	}
}
