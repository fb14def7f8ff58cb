// Package deploy_test holds the files of this directory to what weir has: its metrics and flags.
package deploy_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/operations.md names every metric (a test of internal/metric), and so an alert or a plot of
// something that it does not name would never show anything.
func TestRulesAndDashboardUseMetricsThatExist(t *testing.T) {
	page := read(t, "../docs/operations.md")
	named := regexp.MustCompile(`\bweir_[a-z0-9_]+`)
	for _, file := range []string{"prometheus/weir.rules.yaml", "prometheus/weir.rules.test.yaml", "grafana/weir.json"} {
		found := named.FindAllString(read(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range found {
			name = strings.TrimSuffix(name, "_bucket")
			if name != "weir_inbox_refused" && !strings.Contains(page, "`"+name+"`") { // that is a table
				t.Errorf("%s uses %s, which docs/operations.md does not name", file, name)
			}
		}
	}
}

func TestEachAlertIsTestedBothWays(t *testing.T) {
	tests := read(t, "prometheus/weir.rules.test.yaml")
	for _, alert := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, "prometheus/weir.rules.yaml"), -1) {
		cases := strings.Split(tests, `alertname="`+alert[1]+`"`)[1:]
		raised, quiet := 0, 0
		for _, c := range cases {
			if part, _, _ := strings.Cut(c, "input_series"); strings.Contains(part, "exp_samples: []") {
				quiet++
			} else {
				raised++
			}
		}
		if raised == 0 || quiet == 0 {
			t.Errorf("%s is raised by %d tests, and by %d not; each must be at least one", alert[1], raised, quiet)
		}
	}
}

// docs/start-kubernetes.md lists them, so that its readers need not open the file.
func TestTheKubernetesPageHasTheAlertsThatWakeSomebody(t *testing.T) {
	shown := make(map[string]string)
	rows := regexp.MustCompile("(?m)^\\| `(Weir\\w+)` \\| (\\w+) \\|")
	for _, row := range rows.FindAllStringSubmatch(read(t, "../docs/start-kubernetes.md"), -1) {
		shown[row[1]] = row[2]
	}
	rules := regexp.MustCompile(`(?s)- alert: (\w+).*?severity: (\w+)`)
	for _, rule := range rules.FindAllStringSubmatch(read(t, "prometheus/weir.rules.yaml"), -1) {
		alert, severity := rule[1], rule[2]
		if of, is := shown[alert]; is && of != severity || !is && severity == "page" {
			t.Errorf("%s has severity %s, and the page shows %q", alert, severity, of)
		}
		delete(shown, alert)
	}
	for alert := range shown {
		t.Errorf("the page shows %s, which is no rule", alert)
	}
}

// The pages make a PrometheusRule of the rules with a command: it holds them as they are.
func TestThePagesMakeAPrometheusRuleOfTheRules(t *testing.T) {
	rules := read(t, "prometheus/weir.rules.yaml")
	for page, dir := range map[string]string{"README.md": ".", "../docs/start-kubernetes.md": "kubernetes"} {
		command := regexp.MustCompile(`(?s)\{ printf 'apiVersion: monitoring.*?kubectl apply -f -\n`).FindString(read(t, page))
		cmd := exec.Command("bash", "-c", "set -eo pipefail; kubectl() { cat; }\n"+command)
		cmd.Dir = dir
		made, err := cmd.CombinedOutput()
		if err != nil || command == "" {
			t.Fatalf("%s: %v: %q printed %s", page, err, command, made)
		}
		header, indented, _ := strings.Cut(string(made), "\nspec:\n")
		if !strings.HasPrefix(header, "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: weir, ") ||
			strings.ReplaceAll("\n"+indented, "\n  ", "\n") != "\n"+rules {
			t.Errorf("%s makes\n%s", page, made)
		}
	}
}

// The rules' own tests are run where Prometheus' promtool is; `make deploy` brings it.
func TestPromtoolFindsTheRulesRight(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not in PATH; make deploy runs it")
	}
	for _, args := range [][]string{{"check", "rules", "weir.rules.yaml"}, {"test", "rules", "weir.rules.test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestTheDashboardIsComplete(t *testing.T) {
	var board struct {
		Title  string
		Panels []struct {
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/weir.json")), &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || len(board.Panels) == 0 {
		t.Error("the dashboard is empty")
	}
	for _, p := range board.Panels {
		if p.Title == "" || len(p.Targets) == 0 || p.Targets[0].Expr == "" || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("a panel has no title, no query or no place: %+v", p)
		}
	}
}

func TestManifestsUseFlagsThatExist(t *testing.T) {
	weir := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("go", "build", "-o", weir, "../cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	known := func(command ...string) map[string]bool {
		t.Helper()
		help, err := exec.Command(weir, append(command, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("weir %s --help: %v\n%s", strings.Join(command, " "), err, help)
		}
		flags := make(map[string]bool)
		for _, f := range flag.FindAllString(string(help), -1) {
			flags[f] = true
		}
		return flags
	}
	serve, others := known("serve"), map[string]map[string]bool{"kubernetes/first-user.yaml": known("user", "create")}
	files, err := fs.Glob(os.DirFS("."), "kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "compose.yaml") {
		used := regexp.MustCompile(`(?:- |")(--[a-z][a-z-]+)`).FindAllStringSubmatch(read(t, file), -1)
		if len(used) == 0 {
			t.Errorf("%s uses no flag", file)
		}
		flags := serve
		if of, is := others[file]; is {
			flags = of
		}
		for _, f := range used {
			if !flags[f[1]] {
				t.Errorf("%s uses %s, which its command does not have", file, f[1])
			}
		}
	}
}
