package cli

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/broker"
)

type doctorCmd struct {
	storeFlag
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (doctorCmd) Help() string {
	return `Examines the store and changes nothing. The exit code is 6 if acknowledged records can be lost, or the store cannot serve.

Examples:

  weir doctor
  weir doctor --store postgres://weir@db.internal/weir --output json`
}

// findingRow is a finding in JSON.
type findingRow struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Level  string `json:"level"`
	Advice string `json:"advice,omitempty"`
}

func (c *doctorCmd) Run(ctx context.Context, t *terminal, version buildVersion) error {
	found, unexamined := store.Examine(ctx, c.Store)
	if unexamined != nil && len(found) == 0 {
		return c.explain(ctx, unexamined, "")
	}
	us := doctor.Finding{Name: "weir", Value: fmt.Sprintf("%s (%s, %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)}
	findings := append([]doctor.Finding{us}, found...)
	if unexamined == nil {
		findings = append(findings, c.brokers(ctx)...)
	}
	if err := c.print(t, findings); err != nil {
		return err
	}
	if unexamined != nil { // a shard that does not answer, while others do
		return c.explain(ctx, unexamined, "")
	}
	return verdict(findings)
}

// brokers finds processes that are advertised to Kafka clients at one address. A store that cannot
// be read has its own findings.
func (c *doctorCmd) brokers(ctx context.Context) []doctor.Finding {
	keys, err := store.Keys(ctx, c.Store, broker.Keys, broker.KeysMost)
	pairs := broker.AtOneAddress(keys)
	if err != nil || len(pairs) == 0 {
		return nil
	}
	return []doctor.Finding{{Name: "brokers at one address", Value: strings.Join(pairs, "; "), Level: doctor.Warn,
		Advice: "if both live, consumer groups are served by one of them only: give each process an --advertise address of its own. If one was killed a moment ago, its key is old soon: run weir doctor again in a minute"}}
}

func (c *doctorCmd) print(t *terminal, findings []doctor.Finding) error {
	if c.Output.json() {
		list := []findingRow{}
		for _, f := range findings {
			list = append(list, findingRow{f.Name, f.Value, f.Level.String(), f.Advice})
		}
		return printJSON(t, list)
	}
	var rows [][]string
	for _, f := range findings {
		rows = append(rows, []string{f.Level.String(), f.Name, f.Value})
	}
	style := map[doctor.Level]string{doctor.Warn: yellow, doctor.Bad: red}
	if err := tableIn(t.out, "LEVEL CHECK VALUE", rows, func(row int) string { return style[findings[row].Level] }); err != nil {
		return err
	}
	for _, f := range findings {
		if f.Advice != "" {
			fmt.Fprintf(t.out, "\n%s, %s: %s\n", f.Level, printable(f.Name), printable(f.Advice))
		}
	}
	return nil
}

// verdict is an error when acknowledged records are in danger.
func verdict(findings []doctor.Finding) error {
	for _, f := range findings {
		if f.Level == doctor.Bad {
			return unsafe(fmt.Errorf("%s is %s: acknowledged records can be lost, or the store cannot serve", f.Name, f.Value), f.Advice)
		}
	}
	return nil
}
