package system_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/lines"
	"github.com/weir-log/weir/bench/system"
)

// Whoever writes an adapter sees the line that was not understood.
func TestAnAnswerThatIsNoneIsShown(t *testing.T) {
	for _, c := range []struct{ answer, says string }{
		{`{"id":1,"name":"x"}`, `hello was refused: the answer has neither ok nor err: {"id":1,"name":"x"}`},
		{`{"id":1,"ok":0,"err":"no such server"}`, `hello was refused: no such server`},
		{`{"id":1,"ok":true,"name":"x"}`, `{"id":1,"ok":true,"name":"x"}`},
		{`{"id":1,"ok":1,"name":"x","can":["queue"],"settings":{"n":1}}`, `"settings":{"n":1}`},
		{`{"id":1,"x":"` + strings.Repeat("y", 100_000) + `"}`, `yyyy…`},
	} {
		pipe := says(t, c.answer)
		if _, err := system.Greet(t.Context(), pipe, t.TempDir(), system.Durable); err == nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 1000 {
			t.Errorf("%.80s: %v", c.answer, err)
		}
	}
	for _, c := range []struct{ answer, says string }{
		{`{"id":1,"err":"connection lost"}`, "the adapter stopped work by itself: connection lost"},
		{`{"id":1,"ok":1}`, "the adapter stopped work by itself: it was answered with ok"},
		{`{"id":1,"got":"%"}`, `{"id":1,"got":"%"}`},
	} {
		pipe := says(t, c.answer)
		if err := pipe.Listen(t.Context(), lines.Request{"op": "work"}, func(lines.Answer) {}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.answer, err)
		}
	}
}

// says is an adapter that answers its first request with a line, and then no more.
func says(t *testing.T, line string) *lines.Pipe {
	t.Helper()
	file := filepath.Join(t.TempDir(), "line")
	if err := os.WriteFile(file, []byte("of some client\n5\n"+line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := lines.Start(exec.Command("sh", "-c", `read -r request; cat "$1"; cat > /dev/null`, "sh", file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pipe.Kill)
	return pipe
}

// docs/bench-adapter.md says which names adapters get.
func TestNamesAreNewAndOfFewCharacters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "requests")
	adapter := `exec:tee -a '` + file + `' | sed -un 's/.*"id":\([0-9]*\).*/{"id":\1,"ok":1,"name":"n","can":["log","queue","streams"],"order":"none","left":0}/p'`
	for range 2 {
		use(t, adapter)
	}
	requests, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`"(to|from|group)":"([^"]*)"`).FindAllStringSubmatch(string(requests), -1)
	may := regexp.MustCompile(`^[a-z2-7][a-z2-7]{7}-[a-z0-9-]{1,31}$`)
	times := map[string]int{}
	for _, found := range all {
		name := found[2]
		times[strings.Join(found[1:], " ")]++
		if !may.MatchString(name) {
			t.Errorf("a name is %q", name)
		}
	}
	if len(all) != 2*8 || len(times) != 2*5 { // those of the second run are others
		t.Errorf("the names are %v", times)
	}
}

// use asks for everything that has a name.
func use(t *testing.T, adapter string) {
	t.Helper()
	s, err := system.Find(adapter)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	server, err := s.Start(ctx, system.Place{Dir: t.TempDir()}, system.Durable)
	if err != nil {
		t.Fatal(err)
	}
	target := server.Target()
	log, _ := system.As[system.Log](target)
	queue, _ := system.As[system.Queue](target)
	streams, _ := system.As[system.Streams](target)
	_, left := queue.Left(ctx, "measured")
	_, appended := streams.Append(ctx, "currency-short999999", 0, [][]byte{[]byte("{}")})
	_, _, read := streams.ReadStream(ctx, "currency-short999999", 0, 0)
	for _, err := range []error{
		log.Create(ctx, "measured", 1), log.Publish(ctx, "measured", nil), queue.Enqueue(ctx, "measured", nil), left, appended, read,
		ended(log.Consume(ctx, "measured", "group-0", 1, func([]byte) {})), server.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ended: the adapter answers everything at once.
func ended(err error) error {
	if err == nil || !strings.Contains(err.Error(), "stopped consume by itself") {
		return fmt.Errorf("consume: %w", err)
	}
	return nil
}
