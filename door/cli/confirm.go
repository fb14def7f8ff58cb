package cli

import (
	"bufio"
	"fmt"
	"strings"
)

// consent guards commands that destroy. The flag has no variable: a yes is given each time, and not inherited.
type consent struct {
	Yes bool `help:"Do it without asking." short:"y" env:"-"`
}

// obtain asks the person at the terminal to type a name. Without a person, and without --yes, nothing is done.
func (c consent) obtain(t *terminal, what, name string) error {
	if c.Yes {
		return nil
	}
	if !t.inTTY || !t.errTTY {
		return usage(fmt.Errorf("%s needs a yes, and nobody is there to ask: nothing was done", what), "add --yes to do it")
	}
	fmt.Fprintf(t.err, "About to %s. This cannot be undone.\nType %s to go on: ", what, printable(name))
	line, _ := bufio.NewReader(t.in).ReadString('\n') // the end of input is not the name either
	if strings.TrimSpace(line) != name {
		return usage(fmt.Errorf("the answer is not %q: nothing was done", name), "")
	}
	return nil
}
