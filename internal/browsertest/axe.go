package browsertest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weir-log/weir/internal/proctest"
)

// axePackage is axe-core (MPL-2.0), which finds what keeps people from using a page. It is fetched
// when a test needs it.
const axePackage = "axe-core@4.11.0"

var axe = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "weir-test", axePackage)
	file := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(file); err != nil {
		if err := proctest.Install("npm", func() bool { _, err := exec.LookPath("npm"); return err == nil }); err != nil {
			return "", err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		install := exec.Command("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, axePackage)
		install.Stdout, install.Stderr = os.Stderr, os.Stderr
		if err := install.Run(); err != nil {
			return "", err
		}
	}
	text, err := os.ReadFile(file)
	return string(text), err
})

// A Barrier is what axe-core finds on a page. Impact is minor, moderate, serious or critical.
type Barrier struct {
	ID     string `json:"id"` // of the rule, as in axe-core's documentation
	Impact string `json:"impact"`
	Help   string `json:"help"`
	Nodes  []struct {
		HTML string `json:"html"`
	} `json:"nodes"`
}

// Barriers asks axe-core, with the rules that it runs by itself (WCAG 2.0 to 2.2, levels A and AA,
// and good practice), about the page that the tab shows.
func (t *Tab) Barriers(tb testing.TB) []Barrier {
	tb.Helper()
	script, err := axe()
	if err != nil {
		tb.Fatalf("%s: %v", axePackage, err)
	}
	t.Do(tb, chromedp.Evaluate[chromedp.Void](script))
	found := See(tb, t, chromedp.Evaluate[string](`axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`, chromedp.EvalAwaitPromise))
	var barriers []Barrier
	if err := json.Unmarshal([]byte(found), &barriers); err != nil {
		tb.Fatalf("axe-core says %q: %v", found, err)
	}
	return barriers
}
