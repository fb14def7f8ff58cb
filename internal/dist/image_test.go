package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// image is what the last stage of the Containerfile says.
type image struct {
	uid, gid   int
	env        []string
	volume     string
	entrypoint []string
	cmd        []string
	copied     []string // the targets
}

// readImage reads the Containerfile, of which it knows the instructions that are there now.
func readImage(t *testing.T) (i image) {
	t.Helper()
	text, err := os.ReadFile("../../Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, found := strings.Cut(string(text), "FROM scratch\n")
	if !found {
		t.Fatal("the image is not built from scratch: this test does not know what else it holds")
	}
	for line := range strings.Lines(last) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "COPY":
			fields := strings.Fields(rest)
			i.copied = append(i.copied, fields[len(fields)-1])
		case "USER":
			uid, gid, _ := strings.Cut(rest, ":")
			i.uid, _ = strconv.Atoi(uid)
			i.gid, _ = strconv.Atoi(gid)
		case "ENV":
			i.env = append(i.env, rest)
		case "VOLUME":
			i.volume = rest
		case "ENTRYPOINT", "CMD":
			var args []string
			if err := json.Unmarshal([]byte(rest), &args); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if word == "CMD" {
				i.cmd = args
			} else {
				i.entrypoint = args
			}
		case "EXPOSE", "":
		default:
			t.Fatalf("the Containerfile says %q: this test does not know what that is", line)
		}
	}
	return i
}

// What the image holds is laid out as a root file system, and its command runs in it as its user,
// with its variables and nothing else. That needs no container engine.
func TestTheImageServesAsARootFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the root needs root")
	}
	i := readImage(t)
	if i.uid == 0 || i.gid == 0 {
		t.Fatalf("the image runs as %d:%d", i.uid, i.gid)
	}
	root := t.TempDir()
	binary := filepath.Join(root, i.entrypoint[0])
	build := exec.Command("go", "build", "-o", binary, "../../cmd/weir")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	run(t, build)
	for _, dir := range []string{root, filepath.Join(root, i.volume)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(root, i.volume), i.uid, i.gid); err != nil {
		t.Fatal(err)
	}
	in := func(args ...string) *exec.Cmd {
		cmd := exec.Command(i.entrypoint[0], append(i.entrypoint[1:], args...)...)
		cmd.Dir, cmd.Env = "/", i.env
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid)}, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	cmd := in(append(i.cmd, "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "json")...)
	logged, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := ""
	lines := bufio.NewScanner(logged)
	for address == "" && lines.Scan() {
		if m := regexp.MustCompile(`"http":"([^"]+)"`).FindStringSubmatch(lines.Text()); m != nil {
			address = m[1]
		}
	}
	go io.Copy(io.Discard, logged)
	if address == "" {
		t.Fatalf("%v ended: %v", cmd.Args, cmd.Wait())
	}
	url := "http://" + address
	for _, ask := range []struct{ path, body string }{{"/v1/topics", `{"name":"greetings"}`}, {"/v1/topics/greetings/events", "hello"}} {
		kind := map[bool]string{true: "application/json", false: "text/plain"}[ask.path == "/v1/topics"]
		answer, err := http.Post(url+ask.path, kind, strings.NewReader(ask.body))
		if err != nil || answer.StatusCode >= 300 {
			t.Fatalf("%s: %v %v", ask.path, answer, err)
		}
		answer.Body.Close()
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) && cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("SIGTERM: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, i.volume, "weir.db")); err != nil {
		t.Errorf("the events are not in the volume: %v", err)
	}
	if doctor, err := in("doctor").CombinedOutput(); err != nil || !strings.Contains(string(doctor), "SQLite file /data/weir.db") {
		t.Errorf("weir doctor in the image: %v\n%s", err, doctor)
	}
}

// Where a container engine runs, the image is built and runs.
func TestTheImageIsBuiltAndRuns(t *testing.T) {
	engine := ""
	for _, name := range []string{"docker", "podman"} {
		if exec.Command(name, "info").Run() == nil {
			engine = name
			break
		}
	}
	if engine == "" {
		t.Skip("no container engine runs here: the test of the root file system has to do")
	}
	run(t, exec.Command(engine, "build", "-f", "../../Containerfile", "-t", "weir-test", "../.."))
	if got := run(t, exec.Command(engine, "run", "--rm", "weir-test", "version")); !strings.Contains(got, "weir ") {
		t.Errorf("the image says %q", got)
	}
}
