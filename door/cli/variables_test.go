package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// A shell that has the settings of weir serve, as in /etc/default/weir, runs every command: a
// variable that serve reads is none of another command's, or it is of the same kind there.
func TestTheSettingsOfServeAreTakenForNothingElse(t *testing.T) {
	kind := func(flag *kong.Flag) string {
		return strings.TrimRight(flag.Target.Kind().String(), "0123456789") + " " + flag.Enum
	}
	leaves := commandLine(t).Model.Leaves(true)
	ours := make(map[string]*kong.Flag)
	for _, flag := range leaves[slices.IndexFunc(leaves, func(n *kong.Node) bool { return n.Name == "serve" })].Flags {
		for _, name := range flag.Envs {
			ours[name] = flag
		}
	}
	for _, leaf := range leaves {
		for _, flag := range leaf.Flags {
			for _, name := range flag.Envs {
				if serves := ours[name]; serves != nil && kind(serves) != kind(flag) {
					t.Errorf("%s takes %s for its --%s, a %s; for weir serve it is a %s", leaf.Path(), name, flag.Name, kind(flag), kind(serves))
				}
			}
		}
	}
}
