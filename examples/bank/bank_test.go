package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// limit is how long a test waits for anything.
const limit = time.Minute

// eachBank tests a bank whose log is in SQLite, and one whose log is in PostgreSQL.
func eachBank(t *testing.T, test func(ctx context.Context, t *testing.T, b *bank)) {
	for name, log := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "bank.db") },
		"postgres": func(t *testing.T) string { return pgtest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			b, err := openBank(ctx, log(t), filepath.Join(t.TempDir(), "balances.db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.close(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			})
			test(ctx, t, b)
		})
	}
}

func must[V any](t *testing.T) func(v V, err error) V {
	return func(v V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (b *bank) wants(ctx context.Context, t *testing.T, want map[string]int) {
	t.Helper()
	for account, balance := range want {
		if got, err := b.balance(ctx, account); got != balance || err != nil {
			t.Errorf("%s has %d, want %d (%v)", account, got, balance, err)
		}
	}
}

func TestATransferIsDecidedOnce(t *testing.T) {
	eachBank(t, func(ctx context.Context, t *testing.T, b *bank) {
		must[weir.StreamAppended](t)(b.open(ctx, "ann", 100))
		must[weir.StreamAppended](t)(b.open(ctx, "bob", 5))
		must[*weir.Projector](t)(b.project(ctx))
		manager := must[*weir.Consumer](t)(b.manage(ctx))
		for id, c := range map[string]struct {
			transfer
			want string
		}{
			"t1": {transfer{"ann", "bob", 30}, "Done"},
			"t2": {transfer{"bob", "ann", 500}, "Refused"},
			"t3": {transfer{"ann", "nobody", 1}, "Refused"},
		} {
			for range 2 { // the same again changes nothing
				if kind, err := b.begin(ctx, id, c.transfer); kind != c.want || err != nil {
					t.Errorf("transfer %s: %s, want %s (%v)", id, kind, c.want, err)
				}
			}
		}
		b.wants(ctx, t, map[string]int{"ann": 70, "bob": 35})
		// Without its offsets it gets the first event again, and each after that.
		if err := errors.Join(manager.Close(ctx), b.log.ResetGroup(ctx, "transfers", "transfer", weir.Earliest)); err != nil {
			t.Fatal(err)
		}
		must[*weir.Consumer](t)(b.manage(ctx))
		b.handled(ctx, t, "transfers")
		b.wants(ctx, t, map[string]int{"ann": 70, "bob": 35})
	})
}

// An event that comes again changes nothing, and a deletion removes the row, also in a run that
// begins later.
func TestBalancesAreThoseOfTheEvents(t *testing.T) {
	eachBank(t, func(ctx context.Context, t *testing.T, b *bank) {
		must[weir.StreamAppended](t)(b.open(ctx, "ann", 100))
		must[weir.StreamAppended](t)(b.open(ctx, "bob", 5))
		must[weir.Decided[int]](t)(b.withdraw(ctx, "ann", 30))
		if _, err := b.withdraw(ctx, "ann", 71); err == nil {
			t.Error("ann withdraws more than she has")
		}
		projector := must[*weir.Projector](t)(b.project(ctx))
		b.wants(ctx, t, map[string]int{"ann": 70, "bob": 5})
		run := must[weir.ProjectionInfo](t)(b.log.Projection(ctx, "balances")).Run
		if err := errors.Join(projector.Close(ctx), b.log.ResetGroup(ctx, run.Group, "account", weir.Earliest)); err != nil {
			t.Fatal(err)
		}
		must[*weir.Projector](t)(b.project(ctx))
		b.handled(ctx, t, run.Group)
		b.wants(ctx, t, map[string]int{"ann": 70, "bob": 5})

		must[weir.StreamAppended](t)(b.accounts.Category.Delete(ctx, "bob", weir.StreamExists))
		if got := must[int64](t)(b.rebuild(ctx)); got != 2 {
			t.Errorf("readers use run %d", got)
		}
		b.wants(ctx, t, map[string]int{"ann": 70})
		if got, err := b.balance(ctx, "bob"); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("bob, who was deleted, has %d (%v)", got, err)
		}
	})
}

// handled waits until a group has nothing left to do.
func (b *bank) handled(ctx context.Context, t *testing.T, group string) {
	t.Helper()
	for must[weir.Group](t)(b.log.Group(ctx, group)).Lag > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("group", group, "does not end its work")
		}
	}
}
