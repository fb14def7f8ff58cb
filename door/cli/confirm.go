package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// consent guards commands that destroy data. The flag has no environment variable, so that it must
// be given each time.
type consent struct {
	Yes bool `help:"Do not ask for confirmation." short:"y" env:"-"`
}

// obtain asks the person at the terminal to type a name. Without a person, and without --yes,
// nothing is done.
func (c consent) obtain(t *terminal, what, name string) error {
	if c.Yes {
		return nil
	}
	if !t.inTTY || !t.errTTY {
		return usage(fmt.Errorf("%s needs a confirmation, but standard input or standard error is not a terminal: nothing was done", what), "add --yes to confirm it")
	}
	fmt.Fprintf(t.err, "About to %s. This cannot be undone.\nType %s to confirm: ", what, printable(name))
	line, _ := bufio.NewReader(t.in).ReadString('\n') // the end of input is not the name either
	if strings.TrimSpace(line) != name {
		return usage(fmt.Errorf("the answer is not %q: nothing was done", name), "")
	}
	return nil
}

// deletion is a command that deletes things by their names, after somebody confirmed it.
type deletion struct {
	brokerFlags
	consent
	Names []string `arg:"" names:"parent" name:"name" help:"The names of what to delete."`
}

type (
	// deleted is the broker's answer for each name.
	deleted map[string]answer
	answer  struct {
		err     error
		message string
	}
)

// run deletes all it can, and returns the first error. kind is what is deleted, such as topic; the
// text in with is what is deleted together with it.
func (c *deletion) run(ctx context.Context, t *terminal, kind, with string, remove func(*kadm.Client) (deleted, error)) error {
	names := strings.Join(c.Names, " ")
	if err := c.obtain(t, "delete the "+kind+" "+names+" and "+with, names); err != nil {
		return err
	}
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	answers, err := remove(admin)
	if err != nil {
		return c.answer(ctx, "delete "+kind+" "+names, err, "")
	}
	var first error
	for _, name := range c.Names {
		if said := answers[name]; said.err != nil {
			first = cmp.Or(first, c.answer(ctx, fmt.Sprintf("delete %s %q", kind, name), said.err, said.message))
			continue
		}
		fmt.Fprintf(t.out, "deleted %s %s\n", kind, printable(name))
	}
	return first
}
