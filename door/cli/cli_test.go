package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// result is what one run of weir said.
type result struct {
	code     int
	out, err string
}

// weir runs the command line in this process, with nobody at the terminal.
func weir(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	code := run(t.Context(), "test", args, &terminal{in: strings.NewReader(stdin), out: &out, err: &err}, nil)
	return result{code, out.String(), err.String()}
}

// want checks the exit code, and that the output holds each of the texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nout: %s\nerr: %s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("the output lacks %q\nout: %s\nerr: %s", text, r.out, r.err)
		}
	}
}

// otherBroker starts a Kafka broker that is not ours, and points weir's commands at it.
func otherBroker(t *testing.T) string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	address := cluster.ListenAddrs()[0]
	t.Setenv("WEIR_BOOTSTRAP", address)
	return address
}

// An empty value is a variable that the shell does not have. It never means everything, or nothing.
func TestEmptyFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"group", "reset", "g", "--topic", "", "--to", "earliest", "--yes"},
		{"group", "reset", "g", "--topic=", "--to", "earliest", "--yes"},
		{"consume", "orders", "--group", ""},
		{"key", "create", "k", "--access", "read", "--topic", ""},
		{"serve", "--tls-cert", "", "--tls-key", ""},
		{"topic", "alter", "orders", "--unset", ""},
	} {
		weir(t, "", args...).want(t, exitUsage, "is empty")
	}
	if err := emptyFlag([]string{"produce", "orders", "--key", "", "--header", "a=", "--", "--topic", ""}); err != nil {
		t.Error(err)
	}
}

func TestUsageErrorsExitTwoAndSuggest(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"topci", "list"}, `did you mean "topic"?`},
		{[]string{"topic", "creat", "x"}, `did you mean "create"?`},
		{[]string{"topic", "create", "x", "--partitons", "3"}, `did you mean "--partitions"?`},
		{[]string{"acl", "add", "--principal", "User:alice"}, "weir acl add is now weir acl create"},
		{[]string{"acl", "remove"}, "weir acl delete"},
		{[]string{"key", "revoke", "3k7qhd2m"}, "weir key delete"},
		{[]string{"quota", "set", "--default-user"}, "weir quota alter"},
		{[]string{"quota", "remove"}, "weir quota delete"},
		{[]string{"user", "add", "alice"}, "weir user create"},
		{[]string{"user", "password", "alice"}, "weir user alter"},
		{[]string{"queue", "schedule", "set", "mail", "digest"}, "weir queue schedule create"},
		{[]string{"topic", "create"}, `expected "<name>"`},
		{[]string{"topic", "create", "x", "--retention", "10"}, "the unit is missing; write numbers with units"},
		{[]string{"topic", "create", "x", "--retention-size", "10 MB x"}, "not a size"},
		{[]string{"topic", "create", "x", "--retention", "1h", "--config", "retention.ms=5"}, "both set retention.ms"},
		{[]string{"topic", "create", "x", "--linger", "1s", "--config", "weir.linger.ms=5"}, "both set weir.linger.ms"},
		{[]string{"topic", "alter", "x"}, "nothing to change"},
		{[]string{"topic", "list", "--bootstrap", "nowhere"}, "write HOST:PORT"},
		{[]string{"consume", "x", "--from", "yesterday"}, "write earliest, latest, an offset"},
		{[]string{"consume", "x", "--group", "g", "--partition", "1"}, "a group assigns the partitions itself"},
		{[]string{"consume", "x", "--output", "xml"}, "must be one of"},
		{[]string{"produce", "x", "--header", "nothing"}, "is not NAME=VALUE"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			weir(t, "", c.args...).want(t, exitUsage, c.text)
		})
	}
}

func TestMisspelledVariableIsRefused(t *testing.T) {
	for name, want := range map[string]int{
		"WEIR_BOOTSTRP": exitUsage, "WEIR_BOOTSTARP": exitUsage, "WEIR_BOOTSTRAPS": exitUsage, "WEIR_FRM": exitUsage,
		"WEIR_PORT_9092_TCP": exitOK, "WEIR_SERVICE_HOST": exitOK, "WEIR_TEST_POSTGRES": exitOK, "WEIR_BOOTSTRAP": exitOK,
	} {
		var out, err bytes.Buffer
		code := run(t.Context(), "test", []string{"version"}, &terminal{out: &out, err: &err}, []string{name + "=x"})
		if code != want {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, want, err.String())
		}
	}
}

func TestEveryCommandHasExamplesAndEveryFlagAVariable(t *testing.T) {
	for _, command := range strings.Fields(strings.ReplaceAll(`topic-create topic-list topic-describe topic-alter topic-delete
		produce consume group-list group-describe group-reset group-delete queue-create queue-list queue-describe queue-alter queue-delete queue-send queue-work queue-peek
		queue-redrive queue-purge queue-pause queue-resume projection-list projection-describe projection-rebuild projection-pause
		projection-resume projection-delete key-create key-list key-delete serve doctor verify version completion`, "\n", " ")) {
		r := weir(t, "", append(strings.Split(command, "-"), "--help")...)
		r.want(t, exitOK, "Examples:\n", "Usage: weir ")
	}
	weir(t, "", "consume", "--help").want(t, exitOK, "$WEIR_GROUP", "$WEIR_FROM", "$WEIR_FOLLOW", "$WEIR_BOOTSTRAP")
}

func TestNoArgumentsPrintHelp(t *testing.T) {
	weir(t, "").want(t, exitOK, "Usage: weir <command>")
}

func TestHelpOfACommand(t *testing.T) {
	r := weir(t, "", "help")
	r.want(t, exitOK, "Work queues:\n  queue ", "This program:\n")
	if strings.Contains(r.out, "queue create") || strings.Contains(r.out, "Commands:") {
		t.Errorf("the list is not short: %s", r.out)
	}
	weir(t, "", "help", "queue").want(t, exitOK, "queue create ", "queue schedule create ")
	weir(t, "", "help", "queue", "send").want(t, exitOK, "Usage: weir queue send", "Examples:\n")
	weir(t, "", "help", "qeue").want(t, exitUsage, "qeue")
}

// man, where there is one, finds nothing wrong with the page.
func TestTheManualPage(t *testing.T) {
	r := weir(t, "", "manual")
	r.want(t, exitOK)
	page := []byte(r.out)
	for _, text := range []string{
		".TH WEIR 1 \"\" \"weir test\"\n", ".SH WORK QUEUES\n", ".SS weir queue send", "\n.nf\n  weir serve\n", `\fB\-\-bootstrap=`, "($WEIR_BOOTSTRAP)", ".SH EXIT STATUS\n.TP\n0\n",
	} {
		if !bytes.Contains(page, []byte(text)) {
			t.Errorf("the page has no %q", text)
		}
	}
	// Some container images have a script in its place.
	if told, err := exec.Command("man", "--version").Output(); err != nil || !bytes.HasPrefix(told, []byte("man ")) {
		t.Skipf("there is no man here that could read the page: %q, %v", told, err)
	}
	file := filepath.Join(t.TempDir(), "weir.1")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("man", "--warnings", "-l", file)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=100")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 || !bytes.Contains(out, []byte("weir queue purge <name>")) {
		t.Errorf("man: %v: %s\n%.2000s", err, said.String(), out)
	}
}

func TestRoffEscapes(t *testing.T) {
	if got := roff(".a\n'b \\c --d"); got != "\\&.a\n\\&'b \\ec \\-\\-d" {
		t.Errorf("it is %q", got)
	}
}

func TestUnreachableBrokerExitsFour(t *testing.T) {
	weir(t, "", "topic", "list", "--bootstrap", "127.0.0.1:1").want(t, exitUnreachable,
		"no answer from a Kafka broker at 127.0.0.1:1", "connection refused", "weir serve")
}

func TestClosedOutputExitsAsSIGPIPE(t *testing.T) {
	var err bytes.Buffer
	code := run(t.Context(), "test", []string{"version"}, &terminal{out: closedPipe{}, err: &err}, nil)
	if code != exitPipe || err.Len() > 0 {
		t.Fatalf("exit code %d, want %d without words; err: %s", code, exitPipe, err.String())
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, fmt.Errorf("write: %w", syscall.EPIPE) }

func TestInterruptExits130(t *testing.T) {
	otherBroker(t)
	weir(t, "", "topic", "create", "waiting").want(t, exitOK)
	ctx, cancel := context.WithCancelCause(t.Context())
	stdin, keyboard := io.Pipe()
	out := &waitFor{text: "acknowledged", seen: func() {}}
	done := make(chan int)
	go func() {
		done <- run(ctx, "test", []string{"produce", "waiting"}, &terminal{in: stdin, out: io.Discard, err: out}, nil)
	}()
	fmt.Fprintln(keyboard, "one")
	fmt.Fprintln(keyboard, "two") // once it is taken, one has been handed on
	cancel(stopped{syscall.SIGINT})
	if code := <-done; code != 130 {
		t.Errorf("produce: exit code %d, want 130", code)
	}
	if !strings.Contains(out.String(), "interrupted; ") {
		t.Errorf("produce did not say how far it came: %s", out.String())
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	printed := &waitFor{text: "one", seen: func() { cancel(stopped{syscall.SIGINT}) }}
	weir(t, "one\n", "produce", "waiting").want(t, exitOK)
	code := run(ctx, "test", []string{"consume", "waiting", "--follow"}, &terminal{out: printed, err: io.Discard}, nil)
	if code != 130 {
		t.Errorf("consume: exit code %d, want 130", code)
	}
}

// waitFor is a writer that calls seen when a text has been written.
type waitFor struct {
	bytes.Buffer
	text string
	seen func()
}

func (w *waitFor) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.seen()
	}
	return n, err
}

func TestCompletionKnowsTheCommandLine(t *testing.T) {
	for typed, want := range map[string]string{
		"":                      "serve\ntopic\nproduce\nconsume\ngroup\nqueue\nstream\nprojection\nkey\nuser\nacl\nquota\naudit\ndoctor\nverify\ncopy\nshard\ncost\nversion\ncompletion\nhelp\n",
		"to":                    "topic\n",
		"topic de":              "describe\ndelete\n",
		"help topic de":         "describe\ndelete\n",
		"topic create x --ret":  "--retention\n--retention-size\n",
		"completion ":           "bash\nzsh\nfish\n",
		"consume orders --foll": "--follow\n",
	} {
		r := weir(t, "", append([]string{"complete", "--"}, strings.Split(typed, " ")...)...)
		if r.want(t, exitOK); r.out != want {
			t.Errorf("%q completes to %q, want %q", typed, r.out, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		weir(t, "", "completion", shell).want(t, exitOK, "weir complete -- ")
	}
}

func TestErrorsStayOnTheirLinesAndBringNoEscapes(t *testing.T) {
	var out strings.Builder
	err := errors.Join(failed(errors.New("group \x1b[31mred"), "ask `somebody`"), errors.New("second"))
	if code := report(t.Context(), &out, err); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if want := "weir: group \\x1b[31mred\n  second\n  ask `somebody`\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// What exists is completed, too, from the server that the command would go to.
func TestCompletionKnowsTheNamesOnTheServer(t *testing.T) {
	s := serve(t, "--store", "memory:")
	address := "http://" + s.http
	weir(t, "", "topic", "create", "orders", "--bootstrap", s.kafka).want(t, exitOK)
	weir(t, "", "topic", "create", "other", "--bootstrap", s.kafka).want(t, exitOK)
	weir(t, "", "queue", "create", "mails", "--server", address).want(t, exitOK)
	weir(t, "", "stream", "category", "create", "account", "--server", address).want(t, exitOK)
	for _, c := range []struct{ typed, want string }{
		{"topic describe --bootstrap " + s.kafka + " or", "orders\n"},
		{"consume --bootstrap=" + s.kafka + " o", "orders\nother\n"},
		{"topic delete --bootstrap " + s.kafka + " orders ot", "other\n"}, // several
		{"topic describe --bootstrap " + s.kafka + " orders ot", ""},      // one
		{"topic create --bootstrap " + s.kafka + " or", ""},               // a new one
		{"topic describe --bootstrap 127.0.0.1:1 or", ""},
		{"queue work --server " + address + " --concurrency 3 ", "mails\n"},
		{"stream read --server " + address + " acc", "account\n"},
		{"help queue describe ", ""},
	} {
		r := weir(t, "", append([]string{"complete", "--"}, strings.Split(c.typed, " ")...)...)
		if r.want(t, exitOK); r.out != c.want {
			t.Errorf("%q completes to %q, want %q", c.typed, r.out, c.want)
		}
	}
}
