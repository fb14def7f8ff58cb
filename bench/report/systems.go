package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weir-log/weir/bench/run"
)

// Systems say of each system of the results what it is, at which version, and with which settings.
func Systems(all ...run.Result) (lines []string) {
	for _, r := range all {
		for _, c := range r.Cells {
			if c.NotRun != "" {
				continue
			}
			var settings []string
			for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
				settings = append(settings, name+": "+c.Settings[name])
			}
			line := fmt.Sprintf("%s, %s: %s (%s)", c.System, c.Mode, cmp.Or(c.About, "an older result does not say what it is"), strings.Join(settings, "; "))
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// systems writes them as a list.
func systems(w io.Writer, prefix string, all ...run.Result) error {
	_, err := fmt.Fprintf(w, "\n%sSystems\n\n- %s\n", prefix, strings.Join(Systems(all...), "\n- "))
	return err
}
