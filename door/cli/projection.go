package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

type projectionCmd struct {
	List     projectionListCmd     `cmd:"" help:"List projections."`
	Describe projectionDescribeCmd `cmd:"" help:"Show a projection's runs and how far behind they are."`
	Rebuild  projectionRebuildCmd  `cmd:"" help:"Build the read model again, next to the one that readers use."`
	Pause    projectionPauseCmd    `cmd:"" help:"Stop a projection until it is resumed."`
	Resume   projectionResumeCmd   `cmd:"" help:"Let a projection continue; one that stopped at an event tries it again."`
	Delete   projectionDeleteCmd   `cmd:"" help:"Delete a projection that no program works on. Its read models stay."`
}

// projectionPicture is a projection as the server describes it.
type projectionPicture struct {
	Name   string      `json:"name"`
	Paused bool        `json:"paused"`
	Run    runPicture  `json:"run"`
	Next   *runPicture `json:"next,omitempty"`
}

type runPicture struct {
	Number     int64    `json:"number"`
	Version    int      `json:"version"`
	Categories []string `json:"categories,omitempty"`
	Group      string   `json:"group"`
	Lag        int64    `json:"lag"`
	Behind     int64    `json:"behind_ms"`
}

type projectionListCmd struct {
	serverFlags
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (projectionListCmd) Help() string {
	return "Examples:\n\n  weir projection list\n  weir projection list --output json"
}

func (c *projectionListCmd) Run(ctx context.Context, t *terminal) error {
	var list struct{ Projections []string }
	if err := c.ask(ctx, "GET", apiPath("projections"), nil, &list, 0); err != nil {
		return c.answer("list projections", err)
	}
	all, rows := []projectionPicture{}, [][]string{}
	for _, name := range list.Projections {
		var p projectionPicture
		if err := c.ask(ctx, "GET", apiPath("projections", name), nil, &p, 0); err != nil {
			return c.answer(fmt.Sprintf("describe projection %q", name), err)
		}
		next := "-"
		if p.Next != nil {
			next = strconv.FormatInt(p.Next.Number, 10)
		}
		all = append(all, p)
		rows = append(rows, []string{p.Name, p.state(), strconv.FormatInt(p.Run.Number, 10), next, strconv.FormatInt(p.Run.Lag, 10), p.Run.late()})
	}
	if c.Output.json() {
		return printJSON(t, all)
	}
	return table(t.out, "PROJECTION STATE RUN NEXT LAG BEHIND", rows)
}

func (p projectionPicture) state() string {
	if p.Paused {
		return "paused"
	}
	return "active"
}

// late is the age of the oldest event that a run has not handled.
func (r runPicture) late() string { return (time.Duration(r.Behind) * time.Millisecond).String() }

type projectionDescribeCmd struct {
	serverFlags
	Name   string `arg:"" names:"projection" help:"The projection's name."`
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (projectionDescribeCmd) Help() string {
	return "READ says when readers use the run's read model: now, or next, after the run has caught up.\n\n" +
		"Examples:\n\n  weir projection describe totals\n  weir projection describe totals --output json"
}

func (c *projectionDescribeCmd) Run(ctx context.Context, t *terminal) error {
	var p projectionPicture
	if err := c.ask(ctx, "GET", apiPath("projections", c.Name), nil, &p, 0); err != nil {
		return c.answer(fmt.Sprintf("describe projection %q", c.Name), err)
	}
	if c.Output.json() {
		return printJSON(t, p)
	}
	fmt.Fprintf(t.out, "projection %s: %s\n\n", printable(p.Name), p.state())
	rows := [][]string{p.Run.row("now")}
	if p.Next != nil {
		rows = append(rows, p.Next.row("next"))
	}
	return table(t.out, "READ RUN VERSION LAG BEHIND CATEGORIES GROUP", rows)
}

func (r runPicture) row(read string) []string {
	return []string{read, strconv.FormatInt(r.Number, 10), strconv.Itoa(r.Version), strconv.FormatInt(r.Lag, 10), r.late(), cmp.Or(strings.Join(r.Categories, ","), "all"), r.Group}
}

// projectionVerb is a command that changes a projection.
type projectionVerb struct {
	serverFlags
	Name string `arg:"" names:"projection" help:"The projection's name."`
}

func (c *projectionVerb) run(ctx context.Context, t *terminal, method, verb, done string) error {
	path := apiPath("projections", c.Name)
	if method == "POST" {
		path = apiPath("projections", c.Name, verb)
	}
	if err := c.ask(ctx, method, path, nil, nil, 0); err != nil {
		return c.answer(fmt.Sprintf("%s projection %q", verb, c.Name), err)
	}
	fmt.Fprintf(t.out, done+"\n", printable(c.Name))
	return nil
}

type projectionRebuildCmd struct {
	projectionVerb
	Wait bool `help:"Wait until readers use the new read model."`
}

func (projectionRebuildCmd) Help() string {
	return "A new run reads all events from the first one on. Readers use the previous run until the new one has caught up. With --wait the command ends then, " +
		"and shows on a terminal how many events are left; if it is stopped, the rebuilding goes on.\n\n" +
		"Examples:\n\n  weir projection rebuild totals\n  weir projection rebuild totals --wait"
}

func (c *projectionRebuildCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.run(ctx, t, "POST", "rebuild", "projection %s will be rebuilt by the programs that work on it, or by the first that starts"); err != nil || !c.Wait {
		return err
	}
	return c.wait(ctx, t)
}

// lookEvery is the pause between two questions how far a rebuild has come.
const lookEvery = 500 * time.Millisecond

// wait returns when the run that is being made has taken over.
func (c *projectionRebuildCmd) wait(ctx context.Context, t *terminal) error {
	shown := &progress{t: t}
	defer shown.done()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	began, run, first := time.Now(), int64(0), int64(0)
	for {
		var p projectionPicture
		if err := c.ask(ctx, "GET", apiPath("projections", c.Name), nil, &p, 0); err != nil {
			return c.answer(fmt.Sprintf("see how far projection %q is", c.Name), err)
		}
		if p.Next == nil || run != 0 && p.Run.Number >= run {
			shown.done()
			fmt.Fprintf(t.out, "projection %s is rebuilt: readers use run %d\n", printable(c.Name), p.Run.Number)
			return nil
		}
		if run == 0 {
			run, first = p.Next.Number, p.Next.Lag
		}
		shown.say("run %d: %s left%s", p.Next.Number, plural(p.Next.Lag, "event"), remaining(p, first, time.Since(began)))
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// remaining says how long the rest of a run takes if it goes on as before.
func remaining(p projectionPicture, first int64, since time.Duration) string {
	handled := first - p.Next.Lag
	switch {
	case p.Paused:
		return ", paused"
	case handled <= 0:
		return ""
	}
	left := time.Duration(float64(since) * float64(p.Next.Lag) / float64(handled))
	return fmt.Sprintf(", about %v", left.Round(time.Second))
}

type projectionPauseCmd struct{ projectionVerb }

func (projectionPauseCmd) Help() string { return "Examples:\n\n  weir projection pause totals" }

func (c *projectionPauseCmd) Run(ctx context.Context, t *terminal) error {
	return c.run(ctx, t, "POST", "pause", "paused projection %s")
}

type projectionResumeCmd struct{ projectionVerb }

func (projectionResumeCmd) Help() string { return "Examples:\n\n  weir projection resume totals" }

func (c *projectionResumeCmd) Run(ctx context.Context, t *terminal) error {
	return c.run(ctx, t, "POST", "resume", "resumed projection %s")
}

type projectionDeleteCmd struct {
	consent
	projectionVerb
}

func (projectionDeleteCmd) Help() string {
	return "Examples:\n\n  weir projection delete totals\n  weir projection delete totals --yes"
}

func (c *projectionDeleteCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.obtain(t, fmt.Sprintf("delete projection %q", c.Name), c.Name); err != nil {
		return err
	}
	return c.run(ctx, t, "DELETE", "delete", "deleted projection %s")
}
