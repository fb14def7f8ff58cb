package tour

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/proctest"
)

const fromKafkaPage = "../../docs/from-kafka.md"

// Another weir stands for the old Kafka. What came since the move is copied there, whole, and
// nothing else.
func TestTheWayBackCopiesWhatCameSince(t *testing.T) {
	addresses, err := proctest.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	sh, there, _ := stage{env: []string{"WEIR_STORE=sqlite:weir.db"}, named: []string{" --user admin --password-file admin.password", "", "kafka.example.org:9092", addresses[0]}}.start(t)
	sh.starts()
	sh.must(fmt.Sprintf("WEIR_STORE=sqlite:old.db WEIR_KAFKA=%s WEIR_HTTP=%s weir serve > old.log 2>&1 &", addresses[0], addresses[1]))
	sh.must(strings.Replace(isReady, "$WEIR_SERVER", "http://"+addresses[1], 1))
	for _, at := range []string{"", " --bootstrap " + addresses[0]} {
		sh.must("weir topic create orders --partitions 2" + at)
		sh.must("printf 'a\\nb\\n' | weir produce orders --partition 0" + at)
	}
	sh.must("printf 'orders:0:2\\norders:1:0\\n' > orders.ends")
	sh.must(`echo '{"key": "k", "value": "c", "headers": [{"name": "source", "value": "shop"}], "partition": 0}' | weir produce orders --input json`)
	sh.must("echo d | weir produce orders --partition 1")
	sh.must(there.Replace(fencesOf(t, fromKafkaPage, "## The way back")[0].text))
	const since = `weir consume orders --output json %s | grep -v '"value":"[ab]"' | sort`
	here, copied := sh.must(fmt.Sprintf(since, "")), sh.must(fmt.Sprintf(since, "--bootstrap "+addresses[0]))
	if copied != here || strings.Count(strings.TrimSpace(here), "\n") != 1 {
		t.Errorf("since the move weir got\n%s\nand copied\n%s", here, copied)
	}
}

// kafka-acls.sh is a function here, which gives its rules to weir in weir's words: then all that
// the page names are operations and resources.
func TestTheRulesForMirrorMakerAreRules(t *testing.T) {
	sh, _, _ := stage{env: []string{"WEIR_STORE=sqlite:weir.db"}}.start(t)
	sh.starts()
	sh.must(`kafka-acls.sh() {
		local principal=$5; shift 5; set -f
		weir acl create --principal "$principal" --allow $(printf '%s\n' "$@" | sed -E '/^[A-Z]/{s/([a-z])([A-Z])/\1_\2/; s/.*/\L&/}')
	}`)
	sh.must("set -e\n" + fencesOf(t, brokersPage, "### MirrorMaker 2")[0].text)
	const want = "User:mirror allow create topic mm2-offset-syncs.weir.internal"
	if got := sh.must("weir acl list"); !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
		t.Errorf("there is no %q in\n%s", want, got)
	}
}

// The lines that change for a pod are lines of the file that is changed.
func TestTheFileForMirrorMakerHasTheLinesThatChangeInAPod(t *testing.T) {
	file := fencesOf(t, fromKafkaPage, "## Copy with MirrorMaker")[0].text
	for line := range strings.Lines(fencesOf(t, brokersPage, "### MirrorMaker in a pod")[0].text) {
		key, _, _ := strings.Cut(line, "=")
		if !strings.Contains("\n"+file, "\n"+key+"=") {
			t.Errorf("mm2.properties has no %s", key)
		}
	}
}
