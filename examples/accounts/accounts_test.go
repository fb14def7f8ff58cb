package main

import (
	"context"
	_ "embed" // the roles
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

//go:embed roles.sql
var roles string

// opened is the program on a database of its own, whose roles are those of roles.sql.
func opened(t *testing.T) (context.Context, *app) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for anything that a test waits for
	t.Cleanup(cancel)
	server := pgtest.Start(t) // roles belong to a server
	database := server.URL()
	for line := range strings.Lines(roles) {
		pgtest.Exec(t, database, line)
	}
	as := func(role string) string {
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "secret")
		return u.String()
	}
	a, err := open(ctx, as("weir"), as("shop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return ctx, a
}

func (a *app) deposit(ctx context.Context, t *testing.T, account, data string) {
	t.Helper()
	if _, err := a.accounts.Category.Append(ctx, account, weir.AnyVersion, weir.NewStreamEvent{Type: "Deposited", Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}

func (a *app) wants(ctx context.Context, t *testing.T, account string, want int) {
	t.Helper()
	if got, err := a.balance(ctx, account); got != want || err != nil {
		t.Errorf("account %s has %d, want %d (%v)", account, got, want, err)
	}
}

func TestAWithdrawalNeedsABalance(t *testing.T) {
	accounts := weir.Aggregate[int]{Apply: apply}
	given := []weir.NewStreamEvent{{Type: "Deposited", Data: []byte(`{"amount": 50}`)}}
	then, err := accounts.Decide(given, withdrawal(30))
	if err != nil || len(then) != 1 || then[0].Type != "Withdrawn" {
		t.Errorf("it decides %v, %v", then, err)
	}
	if then, err := accounts.Decide(given, withdrawal(60)); err == nil {
		t.Errorf("it decides %v", then)
	}
}

func TestBalancesAreWrittenByARoleOfTheirOwn(t *testing.T) {
	ctx, a := opened(t)
	p, err := a.project(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.deposit(ctx, t, "4711", `{"amount": 100}`)
	if _, err := a.withdraw(ctx, "4711", 30); err != nil {
		t.Fatal(err)
	}
	a.wants(ctx, t, "4711", 70)
	if run, err := a.rebuild(ctx); run != 2 || err != nil {
		t.Errorf("readers use run %d, %v", run, err)
	}
	a.wants(ctx, t, "4711", 70)
	if _, err := a.accounts.Category.Delete(ctx, "4711", weir.StreamExists); err != nil {
		t.Fatal(err)
	}
	if _, err := a.balance(ctx, "4711"); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("the balance of a deleted account: %v", err)
	}
	if err := a.healthy(p); err != nil {
		t.Error(err)
	}
}

func TestAHaltedPartitionIsNotHealthy(t *testing.T) {
	ctx, a := opened(t)
	p, err := a.project(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.deposit(ctx, t, "4711", "no JSON")
	for a.healthy(p) == nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the partition does not halt")
		}
	}
}

func TestAnAccountsRowIsWrittenForAnEvent(t *testing.T) {
	ctx, a := opened(t)
	tx, err := a.db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	e := weir.ProjectedEvent{Run: 1, StreamEvent: weir.StreamEvent{Stream: "4711", Type: "Deposited", Data: []byte(`{"amount": 50}`)}}
	if err := write(ctx, tx, e); err != nil {
		t.Fatal(err)
	}
	var balance int
	if err := tx.QueryRow(ctx, `SELECT balance FROM balances WHERE account = '4711'`).Scan(&balance); err != nil || balance != 50 {
		t.Errorf("it has %d, %v", balance, err)
	}
}
