// Command bank keeps accounts as streams of events, their balances in a SQLite file of its own, and
// carries out transfers between accounts. No server is needed.
//
//	bank open ann 100            opens an account
//	bank withdraw ann 30         if the balance allows it
//	bank transfer t1 ann bob 20  begins a transfer, and waits until it is decided
//	bank run                     keeps the balances and decides transfers, until it is stopped
//	bank balance ann             waits until the table has all events of the account
//	bank rebuild                 makes the balances anew, beside those that are read
//
// LOG names the log: sqlite:bank.db, which is the default, or postgres://…
package main

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed" // the tables
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // any driver for any database will do

	"github.com/weir-log/weir"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := openBank(ctx, cmp.Or(os.Getenv("LOG"), "sqlite:bank.db"), "balances.db")
	if err == nil {
		err = errors.Join(b.do(ctx, os.Args[1:], os.Stdout), b.close(context.WithoutCancel(ctx)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bank:", err)
		os.Exit(1)
	}
}

type bank struct {
	log       *weir.Log
	db        *sql.DB                // of the balances
	accounts  weir.Aggregate[int]    // their balances
	transfers weir.Aggregate[string] // the type of their last event: Begun, Done or Refused
}

//go:embed balances.sql
var tables string

func openBank(ctx context.Context, log, balances string) (*bank, error) {
	l, err := weir.Open(ctx, log, weir.Options{})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+balances+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	b := &bank{log: l, db: db, accounts: weir.Aggregate[int]{Apply: apply}, transfers: weir.Aggregate[string]{Apply: stage}}
	if b.accounts.Category, err = l.EnsureCategory(ctx, weir.CategorySpec{Name: "account"}); err == nil {
		b.transfers.Category, err = l.EnsureCategory(ctx, weir.CategorySpec{Name: "transfer"})
	}
	if err == nil {
		_, err = db.ExecContext(ctx, tables)
	}
	if err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

// close ends what runs in order: handlers finish, and what they did is committed.
func (b *bank) close(ctx context.Context) error {
	return errors.Join(b.log.Close(ctx), b.db.Close())
}

// money is the data of an account's event.
type money struct {
	Amount int `json:"amount"`
}

func event(id, kind string, data any) weir.NewStreamEvent {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // numbers and strings
	}
	return weir.NewStreamEvent{ID: id, Type: kind, Data: text}
}

// apply returns the balance after an event.
func apply(balance int, e weir.StreamEvent) (int, error) {
	if e.Erased { // its subject was forgotten, and its data with it
		return balance, nil
	}
	var m money
	err := json.Unmarshal(e.Data, &m)
	switch e.Type {
	case "Opened", "Credited":
		return balance + m.Amount, err
	case "Withdrawn", "Debited":
		return balance - m.Amount, err
	}
	return balance, nil
}

// stage returns where a transfer is after an event.
func stage(_ string, e weir.StreamEvent) (string, error) { return e.Type, nil }

func (b *bank) open(ctx context.Context, account string, amount int) (weir.StreamAppended, error) {
	return b.accounts.Category.Append(ctx, account, weir.NoStream, event("open "+account, "Opened", money{amount}))
}

// withdraw decides by the balance. If another event comes in between, it decides anew.
func (b *bank) withdraw(ctx context.Context, account string, amount int) (weir.Decided[int], error) {
	return b.accounts.Do(ctx, account, func(balance int) ([]weir.NewStreamEvent, error) {
		if balance < amount {
			return nil, fmt.Errorf("the account has %d, which is less than %d", balance, amount)
		}
		return []weir.NewStreamEvent{event("", "Withdrawn", money{amount})}, nil // no ID: Do gives one
	})
}

// project keeps the balances: in table made, a row for each run and account.
func (b *bank) project(ctx context.Context) (*weir.Projector, error) {
	return b.log.Project(ctx, weir.Projection{ // a Projector: close it to end
		Name: "balances", Version: 1, Categories: []string{"account"},
		Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
			if e.Deleted { // the stream was deleted
				_, err := b.db.ExecContext(ctx, `DELETE FROM made WHERE run = ? AND account = ?`, e.Run, e.Stream)
				return err
			}
			by, err := apply(0, e.StreamEvent)
			if err != nil {
				return err
			}
			_, err = b.db.ExecContext(ctx, `INSERT INTO made (run, account, balance, version) VALUES (?, ?, ?, ?)
				ON CONFLICT (run, account) DO UPDATE SET balance = balance + excluded.balance, version = excluded.version
				WHERE version < excluded.version`, e.Run, e.Stream, by, e.Version)
			return err
		},
		TakeOver: func(ctx context.Context, run int64) error {
			_, err := b.db.ExecContext(ctx, `UPDATE shown SET run = max(run, ?)`, run) // one that is late changes nothing
			return err
		},
	})
}

// balance reads what the projection made, once that has all events of the account.
func (b *bank) balance(ctx context.Context, account string) (balance int, err error) {
	if err := b.log.AwaitProjection(ctx, "balances", "account", account); err != nil {
		return 0, err
	}
	return balance, b.db.QueryRowContext(ctx, `SELECT balance FROM balances WHERE account = ?`, account).Scan(&balance)
}

// transfer is the data of the event that begins one.
type transfer struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int    `json:"amount"`
}

// begin begins a transfer, and returns what was decided. If it is repeated, it only waits.
func (b *bank) begin(ctx context.Context, id string, t transfer) (kind string, err error) {
	if t.From == t.To {
		return "", errors.New("a transfer needs two accounts")
	}
	if _, err := b.transfers.Category.Append(ctx, id, weir.NoStream, event("begin "+id, "Begun", t)); err != nil {
		return "", err
	}
	for {
		for e, err := range b.transfers.Category.Events(ctx, id, weir.StreamRange{From: 1}) {
			return e.Type, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// manage decides the transfers that were begun.
func (b *bank) manage(ctx context.Context) (*weir.Consumer, error) {
	return b.log.Manage(ctx, weir.ProcessManager{Name: "transfers", Categories: []string{"transfer"}, React: b.decide})
}

// decide returns what follows from a transfer: a debit and a credit if the balance allows it, and
// in any case what was decided. It expects the versions that it has read.
func (b *bank) decide(ctx context.Context, e weir.CategoryEvent) ([]weir.StreamPart, error) {
	if e.Deleted || e.Erased || e.Type != "Begun" {
		return nil, nil
	}
	var t transfer
	if err := json.Unmarshal(e.Data, &t); err != nil {
		return nil, weir.Permanent(err)
	}
	now, at, err := b.transfers.Load(ctx, e.Stream)
	if err != nil || now != "Begun" { // decided already
		return nil, err
	}
	balance, version, err := b.accounts.Load(ctx, t.From)
	if err != nil {
		return nil, err
	}
	to, err := b.accounts.Category.State(ctx, t.To)
	if err != nil {
		return nil, err
	}
	decision := weir.StreamPart{Category: b.transfers.Category, Stream: e.Stream, Expected: weir.ExpectedVersion(at)}
	if balance < t.Amount || !to.Exists {
		decision.Events = []weir.NewStreamEvent{event("", "Refused", t)}
		return []weir.StreamPart{decision}, nil
	}
	decision.Events = []weir.NewStreamEvent{event("", "Done", t)}
	return []weir.StreamPart{
		decision,
		{Category: b.accounts.Category, Stream: t.From, Expected: weir.ExpectedVersion(version), Events: []weir.NewStreamEvent{event("", "Debited", money{t.Amount})}},
		{Category: b.accounts.Category, Stream: t.To, Expected: weir.StreamExists, Events: []weir.NewStreamEvent{event("", "Credited", money{t.Amount})}},
	}, nil
}

// rebuild begins a run of the projection, and returns its number once readers use it.
func (b *bank) rebuild(ctx context.Context) (run int64, err error) {
	if err := b.log.RebuildProjection(ctx, "balances"); err != nil {
		return 0, err
	}
	for {
		is, err := b.log.Projection(ctx, "balances")
		if err != nil || is.Next == nil {
			return is.Run.Number, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// do carries out a command.
func (b *bank) do(ctx context.Context, args []string, out io.Writer) error {
	words := map[string]int{"open": 3, "withdraw": 3, "transfer": 5, "run": 1, "balance": 2, "rebuild": 1}
	if len(args) == 0 || words[args[0]] != len(args) {
		return errors.New("usage: bank open ACCOUNT AMOUNT | withdraw ACCOUNT AMOUNT | transfer ID FROM TO AMOUNT | run | balance ACCOUNT | rebuild")
	}
	amount := 0
	if n := len(args); n > 2 {
		var err error
		if amount, err = strconv.Atoi(args[n-1]); err != nil || amount <= 0 {
			return fmt.Errorf("%s is no amount", args[n-1])
		}
	}
	switch args[0] {
	case "open":
		done, err := b.open(ctx, args[1], amount)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "account %s is at version %d\n", args[1], done.Version)
	case "withdraw":
		done, err := b.withdraw(ctx, args[1], amount)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "account %s is at version %d and has %d\n", args[1], done.Version, done.State)
	case "transfer":
		kind, err := b.begin(ctx, args[1], transfer{From: args[2], To: args[3], Amount: amount})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "transfer %s: %s\n", args[1], kind)
	case "run":
		if _, err := b.project(ctx); err != nil {
			return err
		}
		if _, err := b.manage(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, "running")
		<-ctx.Done() // then close ends both
	case "balance":
		balance, err := b.balance(ctx, args[1])
		if err != nil {
			return err
		}
		fmt.Fprintln(out, balance)
	case "rebuild":
		run, err := b.rebuild(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "readers use run", run)
	}
	return nil
}
