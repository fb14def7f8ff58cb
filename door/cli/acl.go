package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

type aclCmd struct {
	Add    aclAddCmd    `cmd:"" help:"Allow or forbid users to do something to topics, groups or the cluster."`
	List   aclListCmd   `cmd:"" help:"List rules."`
	Remove aclRemoveCmd `cmd:"" help:"Remove rules."`
}

// aclStore names the store that has the rules. The commands write to it directly, also while a server runs on it.
type aclStore struct {
	storeFlag
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

// with opens the store, which must exist, and does something with its rules.
func (c *aclStore) with(ctx context.Context, t *terminal, do func(*acl.ACLs) error) error {
	return c.direct(ctx, t, "a rule", func(s eventlog.Store, logger *slog.Logger) error {
		return c.answer(ctx, do(acl.New(s, logger)), hint{acl.ErrTooMany, "`weir acl remove` removes rules"})
	})
}

// aclRules are flags that say which rules are meant.
type aclRules struct {
	Principal string   `help:"The user: User:NAME, or User:* for every user." placeholder:"User:NAME" env:"-"`
	Allow     bool     `help:"Rules that allow." env:"-" xor:"effect"`
	Deny      bool     `help:"Rules that forbid; they win over those that allow." env:"-" xor:"effect"`
	Operation []string `help:"What is done: all, read, write, create, delete, alter, describe, describe_configs, alter_configs, cluster_action or idempotent_write. May be given again." placeholder:"NAME" env:"-"`
	Topic     []string `help:"The topic; * is every topic. May be given again." placeholder:"NAME" env:"-"`
	Group     []string `help:"The consumer group; * is every group. May be given again." placeholder:"NAME" env:"-"`
	Cluster   bool     `help:"What belongs to no single topic or group." env:"-"`
	Host      string   `help:"The IP address from which the client connects; * is every address." placeholder:"ADDRESS" env:"-"`
}

// aclPrefixed is the flag of commands that name rules as they are stored.
type aclPrefixed struct {
	Prefixed bool `help:"The names are the beginnings of names." env:"-"`
}

// aclResource is a kind of resource, and the name of one.
type aclResource struct {
	kind acl.Kind
	name string
}

func (f aclRules) resources() []aclResource {
	var all []aclResource
	for _, name := range f.Topic {
		all = append(all, aclResource{acl.Topic, name})
	}
	for _, name := range f.Group {
		all = append(all, aclResource{acl.Group, name})
	}
	if f.Cluster {
		all = append(all, aclResource{acl.Cluster, acl.ClusterName})
	}
	return all
}

func (f aclRules) operations() ([]acl.Operation, error) {
	var all []acl.Operation
	for _, name := range f.Operation {
		op := acl.All
		for op.String() != strings.ToUpper(strings.ReplaceAll(name, "-", "_")) {
			if op++; op > acl.IdempotentWrite {
				return nil, usage(fmt.Errorf("--operation %q is unknown", name), "`weir acl add --help` lists the operations")
			}
		}
		all = append(all, op)
	}
	return all, nil
}

// rules returns the rules that the flags spell out.
func (f aclRules) rules(prefixed bool) ([]acl.Binding, error) {
	ops, err := f.operations()
	switch {
	case err != nil:
		return nil, err
	case f.Principal == "":
		return nil, usage(errors.New("--principal is missing"), "for the user alice, give --principal User:alice")
	case f.Allow == f.Deny:
		return nil, usage(errors.New("neither --allow nor --deny is given"), "")
	case len(ops) == 0:
		return nil, usage(errors.New("--operation is missing"), "for a consumer, give --operation read")
	case len(f.resources()) == 0:
		return nil, usage(errors.New("none of --topic, --group and --cluster is given"), "")
	case prefixed && f.Cluster:
		return nil, usage(errors.New("--prefixed is for names of topics and groups, and --cluster has none"), "give --cluster in a command of its own")
	}
	host := acl.Everywhere
	if f.Host != "" {
		host = acl.HostOf(f.Host)
	}
	var all []acl.Binding
	for _, r := range f.resources() {
		for _, op := range ops {
			b := acl.Binding{Principal: f.Principal, Host: host, Rule: acl.Rule{Kind: r.kind, Name: r.name, Prefixed: prefixed, Operation: op, Deny: f.Deny}}
			if err := b.Check(); err != nil {
				return nil, usage(err, "")
			}
			all = append(all, b)
		}
	}
	return all, nil
}

// filters returns the filters that find the rules that the flags describe. pattern says how the names are compared; without names it is about rules of every name.
func (f aclRules) filters(pattern acl.Pattern) ([]acl.Filter, error) {
	one := acl.Filter{Kind: acl.Any, Pattern: pattern, Operation: acl.Any, Effect: acl.Any}
	if f.Principal != "" {
		one.Principal = &f.Principal
	}
	if f.Host != "" {
		one.Host = &f.Host
	}
	switch {
	case f.Allow:
		one.Effect = acl.Allow
	case f.Deny:
		one.Effect = acl.Deny
	}
	ops, err := f.operations()
	if err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		ops = []acl.Operation{acl.Any}
	}
	resources := f.resources()
	if len(resources) == 0 {
		resources = []aclResource{{kind: acl.Any}}
	}
	var all []acl.Filter
	for _, r := range resources {
		for _, op := range ops {
			next := one
			next.Kind, next.Operation = r.kind, op
			if r.name != "" {
				next.Name = &r.name
			}
			all = append(all, next)
		}
	}
	return all, nil
}

// aclRow is a rule in a list.
type aclRow struct {
	Principal string `json:"principal"`
	Effect    string `json:"effect"` // allow or deny
	Operation string `json:"operation"`
	Kind      string `json:"resource_type"`
	Name      string `json:"name"`
	Prefixed  bool   `json:"prefixed"`
	Host      string `json:"host"`
}

func rowOf(b acl.Binding) aclRow {
	effect := "allow"
	if b.Deny {
		effect = "deny"
	}
	return aclRow{b.Principal, effect, strings.ToLower(b.Operation.String()), b.Kind.String(), b.Name, b.Prefixed, b.Host}
}

// print prints rules.
func (c *aclStore) print(t *terminal, all []acl.Binding) error {
	slices.SortFunc(all, acl.Binding.Compare)
	all = slices.Compact(all)
	rows, cells := []aclRow{}, [][]string{}
	for _, b := range all {
		r := rowOf(b)
		pattern := "literal"
		if r.Prefixed {
			pattern = "prefixed"
		}
		rows = append(rows, r)
		cells = append(cells, []string{r.Principal, r.Effect, r.Operation, r.Kind, r.Name, pattern, r.Host})
	}
	if c.Output.json() {
		return printJSON(t, rows)
	}
	return table(t.out, "PRINCIPAL EFFECT OPERATION RESOURCE NAME PATTERN HOST", cells)
}

type aclAddCmd struct {
	aclStore
	aclRules
	aclPrefixed
}

func (aclAddCmd) Help() string {
	return `A user may do what a rule allows and no rule forbids. Who may read, write, delete or alter something may also describe it. Servers on the store know of a rule within two seconds, without a restart. Super users (weir serve --super-users) may do everything, and rules do not limit API keys.

Examples:

  weir acl add --principal User:alice --allow --operation read --topic orders --group billing
  weir acl add --principal User:alice --allow --operation write --topic orders. --prefixed
  weir acl add --principal 'User:*' --deny --operation all --topic secret`
}

func (c *aclAddCmd) Run(ctx context.Context, t *terminal) error {
	rules, err := c.rules(c.Prefixed)
	if err != nil {
		return err
	}
	return c.with(ctx, t, func(acls *acl.ACLs) error {
		errs := acls.Create(ctx, rules)
		var added []acl.Binding
		for i, b := range rules {
			if errs[i] == nil {
				added = append(added, b)
			}
		}
		return errors.Join(append(errs, c.print(t, added))...)
	})
}

type aclListCmd struct {
	aclStore
	aclRules
	Pattern string `help:"Which rules concern a name: match (all that apply to it, also those about every name and about beginnings of it), any (literal and prefixed ones with exactly this name), literal or prefixed (with exactly this name). Without a name, literal and prefixed list all such rules. Default: ${default}." enum:"match,any,literal,prefixed" default:"match" env:"-" placeholder:"HOW"`
}

// patterns are the values of --pattern. They mean what those of kafka-acls --resource-pattern-type mean (KIP-290); there the default is literal, which does not find the rules that
// apply to a topic by its prefix.
var patterns = map[string]acl.Pattern{"match": acl.Match, "any": acl.AnyPattern, "literal": acl.Literal, "prefixed": acl.Prefixed}

func (aclListCmd) Help() string {
	return `The flags say which rules are listed; without any, all are. With --topic or --group, these are the rules that decide who may do something to it.

Examples:

  weir acl list
  weir acl list --topic orders.eu
  weir acl list --topic orders. --pattern prefixed
  weir acl list --principal User:alice --output json`
}

func (c *aclListCmd) Run(ctx context.Context, t *terminal) error {
	filters, err := c.filters(patterns[c.Pattern])
	if err != nil {
		return err
	}
	return c.with(ctx, t, func(acls *acl.ACLs) error {
		var found []acl.Binding
		for _, f := range filters {
			some, err := acls.List(ctx, f)
			if err != nil {
				return err
			}
			found = append(found, some...)
		}
		return c.print(t, found)
	})
}

type aclRemoveCmd struct {
	aclStore
	aclRules
	aclPrefixed
	consent
	Damaged bool `help:"Remove the rules that cannot be read, and no others." env:"-"`
}

func (aclRemoveCmd) Help() string {
	return `The flags say which rules are removed: all that have what is given.

Examples:

  weir acl remove --principal User:alice --yes
  weir acl remove --principal User:alice --operation write --topic orders --yes`
}

func (c *aclRemoveCmd) Run(ctx context.Context, t *terminal) error {
	if c.Damaged {
		return c.removeDamaged(ctx, t)
	}
	pattern := acl.AnyPattern
	switch {
	case c.Prefixed:
		pattern = acl.Prefixed
	case len(c.resources()) > 0:
		pattern = acl.Literal
	}
	filters, err := c.filters(pattern)
	if err != nil {
		return err
	}
	if f := c.aclRules; f.Principal == "" && f.Host == "" && len(f.resources()) == 0 {
		return usage(errors.New("none of --principal, --host, --topic, --group and --cluster is given: nothing was removed"), "`weir acl list` lists the rules")
	}
	if err := c.obtain(t, "remove the ACLs that have what is given", "yes"); err != nil {
		return err
	}
	return c.with(ctx, t, func(acls *acl.ACLs) error {
		var removed []acl.Binding
		var errs []error
		for _, d := range acls.Delete(ctx, filters) {
			errs = append(append(errs, d.Err), d.Errs...)
			for i, b := range d.Rules {
				if d.Errs[i] == nil {
					removed = append(removed, b)
				}
			}
		}
		return errors.Join(append(errs, c.print(t, removed))...)
	})
}

func (c *aclRemoveCmd) removeDamaged(ctx context.Context, t *terminal) error {
	if err := c.obtain(t, "remove the ACLs that cannot be read", "yes"); err != nil {
		return err
	}
	return c.with(ctx, t, func(acls *acl.ACLs) error {
		n, err := acls.DeleteDamaged(ctx)
		if c.Output.json() {
			return errors.Join(err, printJSON(t, map[string]int{"removed": n}))
		}
		fmt.Fprintf(t.out, "removed %d rules that could not be read\n", n)
		return err
	})
}
