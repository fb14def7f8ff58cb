package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	cases := []kafkaCase{{name: "testA [2]"}, {name: "testB [2] tag"}, {name: "testB [4]"}}
	renumber(cases)
	if got := []string{cases[0].name, cases[1].name, cases[2].name}; !slices.Equal(got, []string{"testA", "testB [1] tag", "testB [2]"}) {
		t.Errorf("they are called %q", got)
	}
}

// aKafkaRun has a case of each kind.
func aKafkaRun(t *testing.T) *kafkaResult {
	t.Helper()
	kafkaNeeds["clients.ATest#testTransaction"] = "transactions"
	t.Cleanup(func() { delete(kafkaNeeds, "clients.ATest#testTransaction") })
	return &kafkaResult{version: "4", classes: map[string][]kafkaCase{
		"clients.ATest": {
			{name: "testFails", result: failed, reason: "expected <1>"}, {name: "testInside", result: internals, reason: "broker internals: KafkaBroker.logManager"},
			{name: "testPasses", result: passed}, {name: "testTransaction [1]", result: failed, reason: "no such request"}, {name: "testTransaction [2]", result: passed},
		},
		"clients.ShareTest": {{name: "all", result: notRun, reason: "share groups"}},
	}}
}

func TestOnlyACaseWithoutAReasonIsBad(t *testing.T) {
	if bad := summarizeKafka(io.Discard, aKafkaRun(t)); bad != 1 {
		t.Errorf("%d are bad, want 1", bad)
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
		"| passed | 2 |", "| failed | 1 |", "| 1 cases, and 1 classes that were not run |",
		"| testFails | **fail**: expected &lt;1> |", "| testInside | internals: KafkaBroker.logManager |", "| testPasses | pass |",
		"| testTransaction [1] | differs: transactions |", "| testTransaction [2] | pass |", "## ShareTest\n\nNot run: share groups.",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document does not say %q:\n%s", want, text)
		}
	}
}
