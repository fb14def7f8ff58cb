package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/quota"
)

type quotaCmd struct {
	Alter  quotaAlterCmd  `cmd:"" help:"Set how much a user, a client id or an IP address may use."`
	List   quotaListCmd   `cmd:"" help:"List quotas."`
	Delete quotaDeleteCmd `cmd:"" help:"Delete quotas."`
}

type quotaStore struct{ accessStore }

// with does something with the store's quotas.
func (c *quotaStore) with(ctx context.Context, t *terminal, do func(context.Context, *quota.Quotas) error) error {
	return c.onLog(ctx, t, "a quota", func(ctx context.Context, log *audit.Log, logger *slog.Logger) error {
		return do(ctx, quota.New(log, logger))
	},
		hint{quota.ErrUnknown, "`weir quota list` lists the quotas"}, hint{quota.ErrTooMany, "`weir quota delete` removes quotas"})
}

// quotaEntity are flags that say whom a quota is about.
type quotaEntity struct {
	User            string `help:"The user, without User:." placeholder:"NAME" env:"-" xor:"user"`
	DefaultUser     bool   `help:"Every user without a quota of its own." env:"-" xor:"user"`
	ClientID        string `name:"client-id" help:"The client id, which a client chooses itself." placeholder:"NAME" env:"-" xor:"client"`
	DefaultClientID bool   `name:"default-client-id" help:"Every client id without a quota of its own." env:"-" xor:"client"`
	IP              string `name:"ip" help:"The IP address from which clients connect." placeholder:"ADDRESS" env:"-" xor:"ip"`
	DefaultIP       bool   `name:"default-ip" help:"Every IP address without a quota of its own." env:"-" xor:"ip"`
}

func quotaPart(name string, isDefault bool) quota.Part {
	if isDefault {
		return quota.Default
	}
	return quota.Named(name)
}

// entity returns the entity that the flags name.
func (f quotaEntity) entity() quota.Entity {
	return quota.Entity{User: quotaPart(f.User, f.DefaultUser), ClientID: quotaPart(f.ClientID, f.DefaultClientID), IP: quotaPart(f.IP, f.DefaultIP)}.Normal()
}

// check returns the entity, or an error if there can be no quota about it.
func (f quotaEntity) check() (quota.Entity, error) {
	e := f.entity()
	if e == (quota.Entity{}) {
		return e, usage(errors.New("none of --user, --default-user, --client-id, --default-client-id, --ip and --default-ip is given"), "for the user alice, give --user alice")
	}
	if err := e.Check(); err != nil {
		return e, usage(err, "")
	}
	return e, nil
}

// quotaRow is what an entity may use, in a list. A part that is absent is null; one that stands for
// all others is the default.
type quotaRow struct {
	User     *quotaName             `json:"user"`
	ClientID *quotaName             `json:"client_id"`
	IP       *quotaName             `json:"ip"`
	Limits   map[quota.Kind]float64 `json:"limits"`
	of       quota.Entity
}

type quotaName struct {
	Name    string `json:"name"`
	Default bool   `json:"default"`
}

func quotaNameOf(p quota.Part) *quotaName {
	if p == (quota.Part{}) {
		return nil
	}
	return &quotaName{p.Name, p.Default}
}

// print prints quotas.
func (c *quotaStore) print(t *terminal, all []quota.Quota) error {
	var rows []quotaRow
	for _, q := range all {
		rows = append(rows, quotaRow{quotaNameOf(q.Entity.User), quotaNameOf(q.Entity.ClientID), quotaNameOf(q.Entity.IP), q.Limits, q.Entity})
	}
	return printRows(t, c.Output, "USER CLIENT-ID IP QUOTAS", rows, func(r quotaRow) []string {
		var limits []string
		for _, k := range quota.Kinds {
			if limit, ok := r.Limits[k]; ok {
				limits = append(limits, string(k)+"="+strconv.FormatFloat(limit, 'f', -1, 64))
			}
		}
		return []string{orDash(r.of.User), orDash(r.of.ClientID), orDash(r.of.IP), strings.Join(limits, " ")}
	})
}

func orDash(p quota.Part) string {
	if p == (quota.Part{}) {
		return "-"
	}
	return p.String()
}

type quotaAlterCmd struct {
	quotaStore
	quotaEntity
	ProducerByteRate       *size    `help:"The most bytes a second of produce requests, such as 10MiB." placeholder:"SIZE" env:"-"`
	ConsumerByteRate       *size    `help:"The most bytes a second of fetched records." placeholder:"SIZE" env:"-"`
	RequestPercentage      *float64 `help:"The most time in which the server works on requests; 100 is one second in each second." placeholder:"PERCENT" env:"-"`
	ControllerMutationRate *float64 `help:"The most partitions a second that are created or deleted, with their topics or alone." placeholder:"N" env:"-"`
	ConnectionCreationRate *int     `help:"The most new connections a second from the IP address." placeholder:"N" env:"-"`
}

func (quotaAlterCmd) Help() string {
	return `A client that exceeds a quota gets its answer, and then has to pause until its rate, measured over ten seconds, is within the quota. Each server on the store enforces quotas on its own: two servers allow twice as much. They know of a change within two seconds, without a restart.

The most specific quota counts: one of the user's name before one of the default user, and both before one of a client id alone; among those of the same user, one with the client id before one with the default client id, and both before one without. A quota of a user is shared by all clients that log in as this user. A client that does not log in is the user ANONYMOUS.

Examples:

  weir quota alter --user alice --producer-byte-rate 10MiB --consumer-byte-rate 20MiB
  weir quota alter --default-user --request-percentage 50
  weir quota alter --user alice --client-id nightly --consumer-byte-rate 1MiB
  weir quota alter --default-ip --connection-creation-rate 20`
}

func (c *quotaAlterCmd) Run(ctx context.Context, t *terminal) error {
	entity, err := c.check()
	if err != nil {
		return err
	}
	change := quota.Change{Entity: entity, Set: make(map[quota.Kind]float64)}
	if c.ProducerByteRate != nil {
		change.Set[quota.ProducerByteRate] = float64(*c.ProducerByteRate)
	}
	if c.ConsumerByteRate != nil {
		change.Set[quota.ConsumerByteRate] = float64(*c.ConsumerByteRate)
	}
	if c.RequestPercentage != nil {
		change.Set[quota.RequestPercentage] = *c.RequestPercentage
	}
	if c.ControllerMutationRate != nil {
		change.Set[quota.ControllerMutationRate] = *c.ControllerMutationRate
	}
	if c.ConnectionCreationRate != nil {
		change.Set[quota.ConnectionCreationRate] = float64(*c.ConnectionCreationRate)
	}
	if len(change.Set) == 0 {
		return usage(errors.New("no quota is given"), "give --producer-byte-rate, --consumer-byte-rate, --request-percentage, --controller-mutation-rate or --connection-creation-rate")
	}
	for k, limit := range change.Set {
		if err := entity.CheckLimit(k, limit); err != nil {
			return usage(err, "")
		}
	}
	return c.change(ctx, t, change)
}

// change makes a change, and prints what the entity may use then.
func (c *quotaStore) change(ctx context.Context, t *terminal, change quota.Change) error {
	return c.with(ctx, t, func(ctx context.Context, quotas *quota.Quotas) error {
		if err := quotas.Change(ctx, []quota.Change{change})[0]; err != nil {
			return err
		}
		left, err := quotas.Find(ctx, change.Entity)
		switch {
		case err != nil:
			return err
		case len(left.Limits) == 0:
			return c.print(t, nil)
		}
		return c.print(t, []quota.Quota{left})
	})
}

type quotaListCmd struct {
	quotaStore
	quotaEntity
}

func (quotaListCmd) Help() string {
	return "The flags say which quotas are listed; without any, all are.\n\nExamples:\n\n  weir quota list\n  weir quota list --user alice --output json"
}

func (c *quotaListCmd) Run(ctx context.Context, t *terminal) error {
	return c.with(ctx, t, func(ctx context.Context, quotas *quota.Quotas) error {
		found, err := quotas.List(ctx, quota.FilterOf(c.entity()))
		if err != nil {
			return err
		}
		return c.print(t, found)
	})
}

type quotaDeleteCmd struct {
	quotaStore
	quotaEntity
	consent
	Quota   []string `help:"The quota that is removed: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate or connection_creation_rate. May be given again. Default: all of the entity." placeholder:"NAME" env:"-"`
	Damaged bool     `help:"Remove the quotas that cannot be read, and no others." env:"-"`
}

func (quotaDeleteCmd) Help() string {
	return `The flags name one entity: --user alice does not remove the quota of the user alice with a client id. What is left of its quotas is printed.

Examples:

  weir quota delete --user alice --yes
  weir quota delete --default-user --quota producer_byte_rate --yes`
}

func (c *quotaDeleteCmd) Run(ctx context.Context, t *terminal) error {
	if c.Damaged {
		return c.removeDamaged(ctx, t, c.consent, "quotas", "quotas", func(log *audit.Log, logger *slog.Logger) repairable {
			return quota.New(log, logger)
		})
	}
	entity, err := c.check()
	if err != nil {
		return err
	}
	change := quota.Change{Entity: entity, Clear: len(c.Quota) == 0}
	for _, name := range c.Quota {
		k := quota.Kind(strings.ReplaceAll(name, "-", "_"))
		if !slices.Contains(quota.Kinds, k) {
			return usage(fmt.Errorf("--quota %q is unknown", name), "`weir quota delete --help` lists the quotas")
		}
		change.Unset = append(change.Unset, k)
	}
	if err := c.obtain(t, "remove quotas of "+entity.String(), "yes"); err != nil {
		return err
	}
	return c.change(ctx, t, change)
}
