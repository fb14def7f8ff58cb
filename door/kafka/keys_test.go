package kafka

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTheDocumentListsWhatIsServed(t *testing.T) {
	const page = "../../docs/kafka.md"
	var table strings.Builder
	table.WriteString("| key | API | versions |\n| --- | --- | --- |\n")
	for _, a := range apis() {
		fmt.Fprintf(&table, "| %d | %s | %d–%d |\n", a.key, a.key.Name(), a.min, a.max)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("%s must have this table:\n%s", page, &table)
	}
}

func TestTheTableIsInOrderAndWithinWhatKmsgKnows(t *testing.T) {
	last := kmsg.Key(-1)
	for _, a := range apis() {
		if a.key <= last {
			t.Errorf("%s stands after %s", a.key.Name(), last.Name())
		}
		last = a.key
		if most := a.key.Request().MaxVersion(); a.min > a.max || a.max > most {
			t.Errorf("%s: versions %d to %d, kmsg knows up to %d", a.key.Name(), a.min, a.max, most)
		}
		if (a.answer == nil) == (a.start == nil) {
			t.Errorf("%s needs one of answer and start", a.key.Name())
		}
	}
}
