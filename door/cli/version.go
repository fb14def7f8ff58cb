package cli

import (
	"fmt"
	"runtime"
)

// buildVersion is the version that the binary was built as.
type buildVersion string

type versionCmd struct {
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (versionCmd) Help() string {
	return "Examples:\n\n  weir version\n  weir version --output json"
}

func (c *versionCmd) Run(t *terminal, version buildVersion) error {
	if c.Output.json() {
		return printJSON(t, map[string]string{
			"version": string(version), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		})
	}
	_, err := fmt.Fprintf(t.out, "weir %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
