// Command accounts keeps accounts as streams of events, and their balances in a table of the same
// PostgreSQL.
//
//	accounts withdraw 4711 30   appends an event, if the balance allows it
//	accounts project            writes balances, until it is stopped
//	accounts balance 4711       waits until the table has all events of the account, and prints the balance
//	accounts rebuild            makes the balances anew from all events, beside those that are read
//
// DATABASE is the address of the program's own role, LOG that of weir's role in the same database.
// Default of LOG: DATABASE.
package main

import (
	"cmp"
	"context"
	_ "embed" // the tables
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	own := os.Getenv("DATABASE")
	a, err := open(ctx, cmp.Or(os.Getenv("LOG"), own), own)
	if err == nil {
		err = errors.Join(a.do(ctx, os.Args[1:]), a.close(context.WithoutCancel(ctx)))
	}
	if err != nil {
		log.Fatalln("accounts:", err)
	}
}

type app struct {
	log      *weir.Log
	db       *pgxpool.Pool
	accounts weir.Aggregate[int]
}

//go:embed tables.sql
var tables string

// open opens the log with the address of weir's role, and the program's tables with another one.
func open(ctx context.Context, logAt, tablesAt string) (*app, error) {
	l, err := weir.Open(ctx, logAt, weir.Options{}) // as role weir
	if err != nil {
		return nil, err
	}
	db, err := pgxpool.New(ctx, tablesAt) // as your own role
	if err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	a := &app{log: l, db: db, accounts: weir.Aggregate[int]{Apply: apply}}
	if a.accounts.Category, err = l.EnsureCategory(ctx, weir.CategorySpec{Name: "account"}); err == nil {
		_, err = db.Exec(ctx, tables)
	}
	if err != nil {
		return nil, errors.Join(err, a.close(ctx))
	}
	return a, nil
}

// close ends what runs in order: handlers finish, and what they did is committed.
func (a *app) close(ctx context.Context) error {
	err := a.log.Close(ctx)
	a.db.Close()
	return err
}

// do carries out a command.
func (a *app) do(ctx context.Context, args []string) error {
	words := map[string]int{"withdraw": 3, "project": 1, "balance": 2, "rebuild": 1}
	if len(args) == 0 || words[args[0]] != len(args) {
		return errors.New("usage: accounts withdraw ACCOUNT AMOUNT | project | balance ACCOUNT | rebuild")
	}
	switch args[0] {
	case "withdraw":
		amount, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		done, err := a.withdraw(ctx, args[1], amount)
		if err != nil {
			return err
		}
		fmt.Printf("account %s is at version %d and has %d\n", args[1], done.Version, done.State)
	case "project":
		if _, err := a.project(ctx); err != nil {
			return err
		}
		fmt.Println("projecting")
		<-ctx.Done() // then close ends it
	case "balance":
		balance, err := a.balance(ctx, args[1])
		if err != nil {
			return err
		}
		fmt.Println(balance)
	case "rebuild":
		run, err := a.rebuild(ctx)
		if err != nil {
			return err
		}
		fmt.Println("readers use run", run)
	}
	return nil
}

// change is the value of an event.
type change struct {
	Amount int `json:"amount"`
}

// apply returns the balance after an event.
func apply(balance int, e weir.StreamEvent) (int, error) {
	if e.Erased { // its subject was forgotten, and its data with it
		return balance, nil
	}
	var c change
	err := json.Unmarshal(e.Data, &c)
	switch e.Type {
	case "Deposited":
		return balance + c.Amount, err
	case "Withdrawn":
		return balance - c.Amount, err
	}
	return balance, nil
}

// withdrawal decides by the balance.
func withdrawal(amount int) func(balance int) ([]weir.NewStreamEvent, error) {
	return func(balance int) ([]weir.NewStreamEvent, error) {
		if amount <= 0 {
			return nil, fmt.Errorf("the amount is %d: it must be above 0", amount)
		}
		if balance < amount {
			return nil, fmt.Errorf("the account has %d, which is less than %d", balance, amount)
		}
		data, err := json.Marshal(change{amount})
		return []weir.NewStreamEvent{{Type: "Withdrawn", Data: data}}, err
	}
}

// withdraw appends what withdrawal decides. If another event comes in between, it decides anew.
func (a *app) withdraw(ctx context.Context, account string, amount int) (weir.Decided[int], error) {
	return a.accounts.Do(ctx, account, withdrawal(amount))
}

// project keeps the balances.
func (a *app) project(ctx context.Context) (*weir.Projector, error) {
	return a.log.Project(ctx, weir.Projection{
		Name: "balances", Version: 1, Categories: []string{"account"},
		Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
			return pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
				if err := write(ctx, tx, e); err != nil {
					return err
				}
				return e.CommitTx(ctx, tx) // the row, and that the event is handled, are one
			})
		},
		TakeOver: func(ctx context.Context, run int64) error {
			_, err := a.db.Exec(ctx, `UPDATE shown SET run = $1 WHERE run < $1`, run) // one that is late changes nothing
			return err
		},
	})
}

// write changes the row of an event's account.
func write(ctx context.Context, tx pgx.Tx, e weir.ProjectedEvent) error {
	if e.Deleted { // the stream was deleted
		_, err := tx.Exec(ctx, `DELETE FROM made WHERE run = $1 AND account = $2`, e.Run, e.Stream)
		return err
	}
	by, err := apply(0, e.StreamEvent)
	if err != nil {
		return weir.Permanent(err) // no attempt will help: its partition halts at once
	}
	_, err = tx.Exec(ctx, `INSERT INTO made AS m (run, account, balance) VALUES ($1, $2, $3)
		ON CONFLICT (run, account) DO UPDATE SET balance = m.balance + excluded.balance`, e.Run, e.Stream, by)
	return err
}

// healthy is for monitoring. It asks neither the store nor your database.
func (a *app) healthy(p *weir.Projector) error {
	err := a.log.Healthy() // the store answers, and accepts events
	for at, why := range p.Halted() {
		err = errors.Join(err, fmt.Errorf("projection halted in %s/%d: %w", at.Topic, at.Partition, why))
	}
	return err
}

// rebuild begins a run, and returns its number once readers use it.
func (a *app) rebuild(ctx context.Context) (run int64, err error) {
	if err := a.log.RebuildProjection(ctx, "balances"); err != nil {
		return 0, err
	}
	for {
		is, err := a.log.Projection(ctx, "balances")
		if err != nil || is.Next == nil {
			return is.Run.Number, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// balance reads what the projection made, once that has all events of the account.
func (a *app) balance(ctx context.Context, account string) (balance int, err error) {
	if err := a.log.AwaitProjection(ctx, "balances", "account", account); err != nil {
		return 0, err
	}
	return balance, a.db.QueryRow(ctx, `SELECT balance FROM balances WHERE account = $1`, account).Scan(&balance)
}
