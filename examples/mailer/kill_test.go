package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
)

type job struct{ Database, SMTP string }

func TestMain(m *testing.M) {
	proctest.Work(func(text string) error {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			return err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println("http://" + listener.Addr().String())
		return run(context.Background(), listener, quick(j.Database, j.SMTP))
	})
	os.Exit(m.Run())
}

// fate is what the server does with a mail.
type fate struct {
	refused  bool
	deferred int // so many times, before it takes it
}

// fates are those of the mails of orders by number: the same for the same seed.
type fates uint64

func (f fates) of(number int) fate {
	random := rand.New(rand.NewPCG(uint64(f), uint64(number)))
	switch random.IntN(8) {
	case 0:
		return fate{refused: true}
	case 1:
		return fate{deferred: 1 + random.IntN(3)}
	}
	return fate{}
}

// Processes are killed at random moments, one after the other. A mail is sent once, and once more
// for each process that was killed after the server had said yes and before the process had
// committed that: no less, and no more. The server takes no mail that it refused.
func TestAMailIsSentOnceAndAgainOnlyIfAKillCameBetweenYesAndCommit(t *testing.T) {
	const kills, clients = 4, 4
	seed := seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	held := random.IntN(30) // the server says yes to this one when the first process is dead
	fateOf := func(number int) fate {
		if number == held {
			return fate{}
		}
		return fates(seed).of(number)
	}
	var moment countdown
	holding, yes := make(chan struct{}), make(chan struct{})
	server := newSMTPD(t, func(step, to string, nth int) error {
		if step == hello {
			return nil
		}
		var number int
		if _, err := fmt.Sscanf(to, "o%d@example.org", &number); err != nil {
			return no(550, err.Error())
		}
		f := fateOf(number)
		switch {
		case step == rcpt && f.refused:
			return no(550, "no such user")
		case step == data && nth <= f.deferred:
			return no(451, "greylisted")
		case step == data && number == held && nth == 1:
			close(holding)
			<-yes
		}
		moment.tick()
		return nil
	})

	database := pgtest.URL(t)
	var base atomic.Pointer[string] // of the process that lives
	process := func(life int) *proctest.Process {
		text, err := json.Marshal(job{labelled(t, database, life), server.address})
		if err != nil {
			t.Fatal(err)
		}
		p := proctest.Start(t, string(text))
		line, alive := <-p.Lines
		if !alive {
			t.Fatalf("process %d ended before it listened", life)
		}
		base.Store(&line)
		return p
	}
	p := process(0)
	var placed atomic.Int64 // orders, from 0 on
	var ordering sync.WaitGroup
	ctx, giveUp := context.WithCancel(t.Context())
	enough, stopOrdering := context.WithCancel(ctx)
	defer ordering.Wait()
	defer giveUp()
	for range clients {
		ordering.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for enough.Err() == nil {
				number := placed.Add(1) - 1
				for status := 0; status != http.StatusCreated && status != http.StatusOK && ctx.Err() == nil; <-pace.C {
					status, _ = put(ctx, *base.Load(), fmt.Sprint("o", number), "two teapots") // an error: it is dead. Again, until the next one lives
				}
			}
		})
	}

	again := make(map[string]int) // how often a mail has to be sent once more
	for life := range kills {
		before := server.counts()
		if life == 0 {
			happens(t, "the server has the mail that it does not say yes to", holding)
			p.Kill()
			close(yes)
		} else {
			p = process(life)
			happens(t, "the server is asked for more", moment.set(1+random.IntN(60)))
			p.Kill()
		}
		doubts := inDoubt(t, server, database, life, before)
		t.Logf("process %d was killed between yes and commit of %v", life, doubts)
		for _, to := range doubts {
			again[to]++
		}
		if to := recipient(fmt.Sprint("o", held)); life == 0 && !slices.Contains(doubts, to) {
			t.Errorf("the mail to %s was taken when the process was dead, and is not in doubt", to)
		}
	}
	process(kills)
	stopOrdering()
	ordering.Wait()
	orders := int(placed.Load())
	eventually(t, "all mails are sent or given up", func() bool {
		return pgtest.Value(t, database, `SELECT count(*) FROM mailer.mails WHERE status <> 'scheduled'`) == fmt.Sprint(orders)
	})

	sent, rows := server.counts(), byRecipient(t, database)
	for number := range orders {
		to := recipient(fmt.Sprint("o", number))
		status, want := "sent ", 1+again[to]
		if fateOf(number).refused {
			status, want = "failed RCPT TO: 550 5.1.1 no such user", 0
		}
		if sent[to] != want {
			t.Errorf("the server took the mail to %s %d times, want %d", to, sent[to], want)
		}
		if rows[to] != status {
			t.Errorf("the mail to %s is %q, want %q", to, rows[to], status)
		}
		for _, mail := range server.mails(to) {
			if id := server.mails(to)[0].Header.Get("Message-ID"); mail.Header.Get("Message-ID") != id {
				t.Errorf("the mail to %s came with the Message-ID %s, and then with %s", to, id, mail.Header.Get("Message-ID"))
			}
		}
	}
	t.Logf("of %d mails %d were sent more than once", orders, len(again))
}

// inDoubt waits until nothing more comes of a process that was killed, and returns who got a mail
// from it of which it had not committed that it was sent.
func inDoubt(t *testing.T, server *smtpd, database string, life int, before map[string]int) (doubts []string) {
	t.Helper()
	eventually(t, "the server is done with the process that is dead", server.idle)
	eventually(t, "the database is done with the process that is dead", func() bool {
		return pgtest.Value(t, database, fmt.Sprintf(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '%s'`, applicationName(life))) == "0"
	})
	rows := byRecipient(t, database)
	for to, n := range server.counts() {
		switch n - before[to] {
		case 0:
		case 1:
			if rows[to] != "sent " {
				doubts = append(doubts, to)
			}
		default:
			t.Errorf("process %d sent the mail to %s %d times", life, to, n-before[to])
		}
	}
	slices.Sort(doubts)
	return doubts
}

// byRecipient returns status and error of all mails.
func byRecipient(t *testing.T, database string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `SELECT recipient, string_agg(format('%s %s', status, error), '; ') FROM mailer.mails GROUP BY recipient`)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	var to, text string
	if _, err := pgx.ForEachRow(rows, []any{&to, &text}, func() error { all[to] = text; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func applicationName(life int) string { return fmt.Sprint("mailer-", life) }

// labelled is the database's address for a process, whose sessions can be told by their name.
func labelled(t *testing.T, database string, life int) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("application_name", applicationName(life))
	u.RawQuery = query.Encode()
	return u.String()
}

// countdown tells when something has happened so many times.
type countdown struct {
	mu   sync.Mutex // guards what follows
	left int
	zero chan struct{}
}

func (c *countdown) set(n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.zero = n, make(chan struct{})
	return c.zero
}

func (c *countdown) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		close(c.zero)
	}
}

func happens(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(limit):
		t.Fatalf("not within %v: %s", limit, what)
	}
}

// seed is WEIR_SEED, or a new one.
func seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("WEIR_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("WEIR_SEED=%d", seed)
	return seed
}
