// Command accounts keeps accounts as streams of events, and their balances in a table of the same
// PostgreSQL.
//
//	accounts withdraw 4711 30   appends an event, if the balance allows it
//	accounts project            writes balances, until it is stopped
//	accounts balance 4711       waits until the table has all events of the account, and prints the balance
//	accounts rebuild            makes the balances anew from all events, beside those that are read
package main

import (
	"context"
	"encoding/json"
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

type app struct {
	log *weir.Log
	db  *pgxpool.Pool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := weir.Open(ctx, os.Getenv("DATABASE"), weir.Options{})
	check(err)
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE"))
	check(err)
	a := app{l, db}
	switch os.Args[1] {
	case "withdraw":
		amount, err := strconv.Atoi(os.Args[3])
		check(err)
		check(a.withdraw(ctx, os.Args[2], amount))
	case "project":
		check(a.project(ctx))
		fmt.Println("projecting")
		<-ctx.Done()
	case "balance":
		check(a.balance(ctx, os.Args[2]))
	case "rebuild":
		check(a.rebuild(ctx))
	}
	check(a.log.Close(context.WithoutCancel(ctx)))
}

// change is the value of an event.
type change struct {
	Amount int `json:"amount"`
}

// apply returns the balance after an event.
func apply(balance int, e weir.StreamEvent) (int, error) {
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

// withdraw decides by the balance. If another event comes in between, it decides anew.
func (a app) withdraw(ctx context.Context, account string, amount int) error {
	category, err := a.log.Category(ctx, "account")
	if err != nil {
		return err
	}
	accounts := weir.Aggregate[int]{Category: category, Apply: apply}
	done, err := accounts.Do(ctx, account, func(balance int) ([]weir.NewStreamEvent, error) {
		if balance < amount {
			return nil, fmt.Errorf("account %s has %d, which is less than %d", account, balance, amount)
		}
		data, err := json.Marshal(change{amount})
		return []weir.NewStreamEvent{{Type: "Withdrawn", Data: data}}, err
	})
	if err == nil {
		fmt.Printf("account %s is at version %d and has %d\n", account, done.Version, done.State)
	}
	return err
}

// tables has a row for each run of the projection and account, which run readers use (the first one
// from its first event on), and the balances of that run.
const tables = `
	CREATE TABLE IF NOT EXISTS made (run bigint, account text, balance int NOT NULL, PRIMARY KEY (run, account));
	CREATE TABLE IF NOT EXISTS shown (one int PRIMARY KEY CHECK (one = 1), run bigint NOT NULL);
	INSERT INTO shown VALUES (1, 1) ON CONFLICT DO NOTHING;
	CREATE OR REPLACE VIEW balances AS SELECT account, balance FROM made JOIN shown USING (run);
`

// project keeps the balances.
func (a app) project(ctx context.Context) error {
	if _, err := a.db.Exec(ctx, tables); err != nil {
		return err
	}
	_, err := a.log.Project(ctx, weir.Projection{
		Name: "balances", Version: 1, Categories: []string{"account"},
		Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
			return pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
				if err := write(ctx, tx, e); err != nil {
					return err
				}
				return e.CommitTx(ctx, tx) // the row, and that the event is handled, are one
			})
		},
		// Readers use what a run made. An older run, of a program that is late, does not take over.
		TakeOver: func(ctx context.Context, run int64) error {
			_, err := a.db.Exec(ctx, `UPDATE shown SET run = $1 WHERE run < $1`, run)
			return err
		},
	})
	return err
}

// write changes the row of an event's account.
func write(ctx context.Context, tx pgx.Tx, e weir.ProjectedEvent) error {
	if e.Deleted { // the stream was deleted
		_, err := tx.Exec(ctx, `DELETE FROM made WHERE run = $1 AND account = $2`, e.Run, e.Stream)
		return err
	}
	by, err := apply(0, e.StreamEvent)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO made AS m VALUES ($1, $2, $3) ON CONFLICT (run, account) DO UPDATE SET balance = m.balance + $3`, e.Run, e.Stream, by)
	return err
}

// rebuild begins a run, and waits until readers use it.
func (a app) rebuild(ctx context.Context) error {
	if err := a.log.RebuildProjection(ctx, "balances"); err != nil {
		return err
	}
	for {
		is, err := a.log.Projection(ctx, "balances")
		if err != nil {
			return err
		}
		if is.Next == nil {
			fmt.Println("readers use run", is.Run.Number)
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (a app) balance(ctx context.Context, account string) error {
	if err := a.log.AwaitProjection(ctx, "balances", "account", account); err != nil {
		return err
	}
	var balance int
	err := a.db.QueryRow(ctx, `SELECT balance FROM balances WHERE account = $1`, account).Scan(&balance)
	if err == nil {
		fmt.Println(balance)
	}
	return err
}

func check(err error) {
	if err != nil {
		log.Fatalln("accounts:", err)
	}
}
