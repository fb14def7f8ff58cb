package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// createQueue creates a queue, given as the body of POST /v1/queues.
func (w *broker) createQueue(ctx context.Context, body string) error {
	return w.ask(ctx, "POST", "/v1/queues", []byte(body), nil)
}

// ask sends a request with a JSON body, and decodes the answer.
func (w *broker) ask(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+w.http+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, said)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(said, into)
}

// runDelayed enqueues messages, by default a million, that are due evenly over an hour, and watches
// the first of it: what they cost in memory, and how late each is. Then it starts weir anew on
// them.
func runDelayed(ctx context.Context, b *bench) error {
	fmt.Println("| store | delayed messages | enqueued/s | memory before | after | at the end | watched | came | late p50 | p99 | max | start-up with them |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, store := range b.stores {
		w, err := b.start(ctx, store)
		if err != nil {
			return err
		}
		err = b.delayed(ctx, w, store)
		w.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) delayed(ctx context.Context, w *broker, store string) error {
	const span = time.Hour
	if err := w.createQueue(ctx, `{"name": "bench", "partitions": 4}`); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	before, _ := w.rss()
	begin := time.Now()
	first := begin.Add(time.Duration(b.load.rows/50_000)*time.Second + 30*time.Second) // enqueued by then, or the figures say so
	const each = 5000
	var enqueuing errgroup.Group
	enqueuing.SetLimit(4)
	for from := 0; from < b.load.rows; from += each {
		enqueuing.Go(func() error {
			var body bytes.Buffer
			body.WriteString(`{"messages":[`)
			for n := from; n < min(from+each, b.load.rows); n++ {
				if n > from {
					body.WriteByte(',')
				}
				due := first.Add(time.Duration(float64(span) * float64(n) / float64(b.load.rows)))
				fmt.Fprintf(&body, `{"value":"%d %080d","at":%d}`, due.UnixMilli(), n, due.UnixMilli())
			}
			body.WriteString(`]}`)
			return w.ask(ctx, "POST", "/v1/queues/bench/batch", body.Bytes(), nil)
		})
	}
	if err := enqueuing.Wait(); err != nil {
		return err
	}
	perSecond := float64(b.load.rows) / time.Since(begin).Seconds()
	time.Sleep(5 * time.Second)
	after, _ := w.rss()
	late, err := w.lateness(ctx, first, b.load.length)
	if err != nil {
		return err
	}
	end, _ := w.rss()
	if err := w.stop(); err != nil {
		return err
	}
	if err := w.run(ctx, b.weir); err != nil {
		return err
	}
	fmt.Printf("| %s | %d | %.0f | %.0f MiB | %.0f MiB | %.0f MiB | %v | %d | %d ms | %d ms | %d ms | %v |\n", store, b.load.rows, perSecond, before, after, end, b.load.length,
		late.TotalCount(), late.ValueAtQuantile(50), late.ValueAtQuantile(99), late.ValueAtQuantile(100), w.started.Round(time.Millisecond))
	return nil
}

// lateness claims what is due with four workers for a while from a time on, and measures by how
// much each message is late, in milliseconds.
func (w *broker) lateness(ctx context.Context, from time.Time, length time.Duration) (*hdrhistogram.Histogram, error) {
	late := hdrhistogram.New(0, 600_000, 3)
	var mu sync.Mutex
	time.Sleep(time.Until(from))
	var workers errgroup.Group
	for range 4 {
		workers.Go(func() error {
			receipts := []string{}
			for ctx.Err() == nil && time.Since(from) < length {
				ask, _ := json.Marshal(map[string]any{"max": 100, "wait_ms": 1000, "ack": receipts})
				var got struct {
					Messages []struct{ Receipt, Value string }
				}
				if err := w.ask(ctx, "POST", "/v1/queues/bench/claim", ask, &got); err != nil {
					return err
				}
				now := time.Now()
				receipts = receipts[:0]
				for _, m := range got.Messages {
					var due int64
					if _, err := fmt.Sscan(m.Value, &due); err != nil {
						return err
					}
					receipts = append(receipts, m.Receipt)
					mu.Lock()
					_ = late.RecordValue(max(now.UnixMilli()-due, 0))
					mu.Unlock()
				}
			}
			return ctx.Err() // what it claimed last is not acknowledged: nobody looks at it again
		})
	}
	return late, workers.Wait()
}
