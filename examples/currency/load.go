package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// load sends rows to a service.
type load struct {
	url           string
	rows, clients int
	seed          uint64
}

// pairs are those of the rows.
var pairs = []string{"USD/EUR", "USD/JPY", "EUR/GBP", "USD/CHF"}

// row is one price of a pair.
type row struct {
	pair string
	command
}

// generate makes rows, one for each minute and pair, by a random walk: the columns are those of the
// comparison's data set, whose file is not to be had.
func generate(seed uint64, n int) []row {
	random := rand.New(rand.NewPCG(seed, 0))
	price := make([]float64, len(pairs))
	for i := range price {
		price[i] = 0.5 + random.Float64()
	}
	round := func(x float64) float64 { return math.Round(x*1e5) / 1e5 }
	rows := make([]row, n)
	for i := range rows {
		p := i % len(pairs)
		open := price[p]
		closing := max(open+(random.Float64()-0.5)/1000, 0.01)
		price[p] = closing
		rows[i] = row{pairs[p], command{
			Time:       time.Date(2023, 1, 1, 0, i/len(pairs), 0, 0, time.UTC),
			TickVolume: 1 + random.IntN(200),
			Open:       round(open), Close: round(closing),
			High: round(max(open, closing) + random.Float64()/5000), Low: round(min(open, closing) - random.Float64()/5000),
		}}
		rows[i].High, rows[i].Low = max(rows[i].High, rows[i].Open, rows[i].Close), min(rows[i].Low, rows[i].Open, rows[i].Close)
	}
	return rows
}

// send sends all rows. Those of one client come one after the other. It ends with the first error.
func (l load) send(ctx context.Context) error {
	rows := make(chan row)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sending sync.WaitGroup
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: l.clients}}
	defer client.CloseIdleConnections()
	for range l.clients {
		sending.Go(func() {
			for r := range rows {
				if err := l.post(ctx, client, r); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, r := range generate(l.seed, l.rows) {
		select {
		case rows <- r:
		case <-ctx.Done():
		}
	}
	close(rows)
	sending.Wait()
	return context.Cause(ctx)
}

func (l load) post(ctx context.Context, client *http.Client, r row) error {
	body, err := json.Marshal(r.command)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/currency/"+r.pair, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(io.LimitReader(res.Body, bodyMax))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST /currency/%s: %s: %s", r.pair, res.Status, bytes.TrimSpace(said))
	}
	return err
}
