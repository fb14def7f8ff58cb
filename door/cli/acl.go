package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/audit"
)

type aclCmd struct {
	Create aclCreateCmd `cmd:"" help:"Allow or forbid users to do something to topics, groups or the cluster."`
	List   aclListCmd   `cmd:"" help:"List rules."`
	Delete aclDeleteCmd `cmd:"" help:"Delete rules."`
}

type aclStore struct{ accessStore }

// with does something with the store's rules.
func (c *aclStore) with(ctx context.Context, t *terminal, do func(context.Context, *acl.ACLs, *apikey.Keys) error) error {
	return c.onLog(ctx, t, "a rule", func(ctx context.Context, log *audit.Log, logger *slog.Logger) error {
		return do(ctx, acl.New(log, logger), apikey.New(log, logger))
	}, hint{acl.ErrTooMany, "`weir acl delete` removes rules"})
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
		op, ok := acl.ParseOperation(name)
		if !ok {
			return nil, usage(fmt.Errorf("--operation %q is unknown", name), "`weir acl create --help` lists the operations")
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

// filters returns the filters that find the rules that the flags describe. pattern says how the
// names are compared; without names it is about rules of every name.
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
	APIKey    string `json:"api_key,omitempty"` // the id of the API key that has the rule; empty: it is an ACL
}

func rowOf(b acl.Binding, key string) aclRow {
	return aclRow{b.Principal, b.Effect().String(), strings.ToLower(b.Operation.String()), b.Kind.String(), b.Name, b.Prefixed, b.Host, key}
}

// print prints rules: ACLs, and then those of API keys.
func (c *aclStore) print(t *terminal, all []acl.Binding, ofKeys ...apikey.Owned) error {
	slices.SortFunc(all, acl.Binding.Compare)
	var rows []aclRow
	for _, b := range slices.Compact(all) {
		rows = append(rows, rowOf(b, ""))
	}
	for _, k := range ofKeys {
		rows = append(rows, rowOf(k.Binding, k.Key))
	}
	return printRows(t, c.Output, "PRINCIPAL EFFECT OPERATION RESOURCE NAME PATTERN HOST FROM", rows, func(r aclRow) []string {
		pattern, from := "literal", "acl"
		if r.Prefixed {
			pattern = "prefixed"
		}
		if r.APIKey != "" {
			from = "key " + r.APIKey
		}
		return []string{r.Principal, r.Effect, r.Operation, r.Kind, r.Name, pattern, r.Host, from}
	})
}

type aclCreateCmd struct {
	aclStore
	aclRules
	aclPrefixed
}

func (aclCreateCmd) Help() string {
	return `A user may do what a rule allows and no rule forbids. Who may read, write, delete or alter something may also describe it. Servers on the store know of a rule within two seconds, without a restart. Super users (weir serve --super-users) may do everything, and rules do not limit API keys.

Examples:

  weir acl create --principal User:alice --allow --operation read --topic orders --group billing
  weir acl create --principal User:alice --allow --operation write --topic orders. --prefixed
  weir acl create --principal 'User:*' --deny --operation all --topic secret`
}

func (c *aclCreateCmd) Run(ctx context.Context, t *terminal) error {
	rules, err := c.rules(c.Prefixed)
	if err != nil {
		return err
	}
	return c.with(ctx, t, func(ctx context.Context, acls *acl.ACLs, keys *apikey.Keys) error {
		errs := acls.Create(ctx, rules)
		var added []acl.Binding
		for i, b := range rules {
			if errs[i] == nil {
				added = append(added, b)
			}
		}
		return errors.Join(append(errs, c.print(t, added), noteOfKeys(ctx, t, keys, c.Principal))...)
	})
}

// noteOfKeys says that API keys with the principal's name do not have its rules.
func noteOfKeys(ctx context.Context, t *terminal, keys *apikey.Keys, principal string) error {
	list, err := keys.List(ctx)
	if err != nil {
		return err
	}
	for _, k := range list {
		if k.Err == nil && principal == "User:"+k.Name {
			fmt.Fprintf(t.err, "the API key %s has this name, too: ACLs are about users, and do not change what the key may do. weir acl list shows it\n", k.ID)
		}
	}
	return nil
}

type aclListCmd struct {
	aclStore
	aclRules
	Pattern string `help:"Which rules concern a name: match (all that apply to it, also those about every name and about beginnings of it), any (literal and prefixed ones with exactly this name), literal or prefixed (with exactly this name). Without a name, literal and prefixed list all such rules. Default: ${default}." enum:"match,any,literal,prefixed" default:"match" env:"-" placeholder:"HOW"`
}

func (aclListCmd) Help() string {
	return `The flags say which rules are listed; without any, all are. With --topic or --group, these are the rules that decide who may do something to it.

Rules from a key are the rights that weir key create gave to an API key, over HTTP and Kafka: weir key delete takes them away together with the key, and weir acl delete leaves them. Keys for work queues have further rights, which weir key list shows. Super users are not in the store, and not listed.

Examples:

  weir acl list
  weir acl list --topic orders.eu
  weir acl list --topic orders. --pattern prefixed
  weir acl list --principal User:alice --output json`
}

func (c *aclListCmd) Run(ctx context.Context, t *terminal) error {
	filters, err := c.filters(acl.Patterns[c.Pattern])
	if err != nil {
		return err
	}
	return c.with(ctx, t, func(ctx context.Context, acls *acl.ACLs, keys *apikey.Keys) error {
		var found []acl.Binding
		for _, f := range filters {
			some, err := acls.List(ctx, f)
			if err != nil {
				return err
			}
			found = append(found, some...)
		}
		ofKeys, err := keys.Rules(ctx, filters...)
		if err != nil {
			return err
		}
		return c.print(t, found, ofKeys...)
	})
}

type aclDeleteCmd struct {
	aclStore
	aclRules
	aclPrefixed
	consent
	Damaged bool `help:"Remove the rules that cannot be read, and no others." env:"-"`
}

func (aclDeleteCmd) Help() string {
	return `The flags say which rules are removed: all that have what is given.

Examples:

  weir acl delete --principal User:alice --yes
  weir acl delete --principal User:alice --operation write --topic orders --yes`
}

func (c *aclDeleteCmd) Run(ctx context.Context, t *terminal) error {
	if c.Damaged {
		return c.removeDamaged(ctx, t, c.consent, "ACLs", "rules", func(log *audit.Log, logger *slog.Logger) repairable {
			return acl.New(log, logger)
		})
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
	if errors.Is(filters[0].CheckDeletion(), acl.ErrTooWide) { // the filters differ in resources and operations
		return usage(errors.New("none of --principal, --host, --topic, --group and --cluster is given: nothing was removed"), "`weir acl list` lists the rules")
	}
	if err := c.obtain(t, "remove the ACLs that have what is given", "yes"); err != nil {
		return err
	}
	return c.with(ctx, t, func(ctx context.Context, acls *acl.ACLs, keys *apikey.Keys) error {
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
		stay, err := keys.Rules(ctx, filters...)
		if len(stay) > 0 {
			fmt.Fprintf(t.err, "%d rules from API keys stay: weir key delete ends a key with all its rules\n", len(stay))
		}
		return errors.Join(append(errs, err, c.print(t, removed))...)
	})
}
