package tour

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const queuePage = "../../docs/queue.md"

// TestTheQueueWalkShowsWhatHappens replays the page. Then it compares the notes of the workers,
// message by message, with what was enqueued.
func TestTheQueueWalkShowsWhatHappens(t *testing.T) {
	sh := replay(t, queuePage, "worker")
	text, err := os.ReadFile(filepath.Join(sh.dir, "handled"))
	if err != nil {
		t.Fatal(err)
	}
	const committed = 65 // mail 1 to mail 65; mail 0 was rolled back
	handled, killed := make(map[int]int), 0
	for line := range strings.Lines(string(text)) {
		worker, mail, _ := strings.Cut(line, ": mail ")
		digits, _, _ := strings.Cut(mail, ",")
		number, err := strconv.Atoi(digits)
		if err != nil || number < 1 || number > committed {
			t.Errorf("a worker handled what nobody enqueued: %q", line)
		}
		if worker == "killed" {
			killed = number
		}
		handled[number]++
	}
	for number := 1; number <= committed; number++ {
		want := 1
		if number == killed {
			want = 2 // its first worker was killed before it could acknowledge it
		}
		if handled[number] != want {
			t.Errorf("mail %d was handled %d times, and not %d", number, handled[number], want)
		}
	}
}

func TestTheQueuePageShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("../../examples/worker/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if shown := blocks(t, queuePage, "### Enqueue", "go")[0] + "\n"; shown != string(source) {
		t.Errorf("%s shows another program than examples/worker/main.go", queuePage)
	}
}
