package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir"
)

// bigStore is how much the pages of the console are asked over.
type bigStore struct{ topics, groups, dead, streams int }

// runConsole fills a store with -rows dead letters, ten times as many streams, a hundredth of
// groups and a thousandth of topics, and asks a fresh broker for each page of the console.
func runConsole(ctx context.Context, b *bench) error {
	if b.load.rows < 1 || slices.Contains(b.stores, "memory") {
		return errors.New("it needs -rows above 0, and a store that outlives a process")
	}
	size := bigStore{topics: max(b.load.rows/1000, 1), groups: max(b.load.rows/100, 1), dead: b.load.rows, streams: 10 * b.load.rows}
	fmt.Printf("%d topics, %d groups, %d dead letters, %d streams\n\n", size.topics, size.groups, size.dead, size.streams)
	fmt.Println("| store | page | first | slowest of ten more | KiB | memory above rest |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, store := range b.stores {
		if err := b.console(ctx, store, size); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) console(ctx context.Context, store string, size bigStore) error {
	address, closeStore, err := b.store(store)
	if err != nil {
		return err
	}
	began := time.Now()
	letter, err := size.fill(ctx, address)
	if err != nil {
		closeStore()
		return err
	}
	fmt.Fprintf(os.Stderr, "filled in %s\n", time.Since(began).Round(time.Second))
	w := &broker{store: address, closeStore: closeStore, kafka: freePort(), http: freePort(), log: b.dir + "/weir.log"}
	if err := w.run(ctx, b.weir); err != nil {
		closeStore()
		return err
	}
	defer w.close()
	one := "?letter=" + url.QueryEscape(letter.Letter.String())
	for _, page := range []string{
		"/", "/console/history",
		"/console/topics", "/console/topics/topic-0", "/console/topics/topic-0/messages", "/console/topics/topic-0/messages?from=0",
		"/console/topics/jobs/messages?text=nowhere",
		"/console/groups", "/console/groups?prefix=group-99", "/console/groups/group-0",
		"/console/queues", "/console/queues/jobs", "/console/queues/jobs/messages", "/console/queues/jobs/dead", "/console/queues/jobs/dead/one" + one,
		"/console/streams", "/console/streams/accounts", "/console/streams/accounts?prefix=account-99", "/console/streams/accounts/account-0",
		"/console/projections", "/console/access/audit",
	} {
		if err := w.page(ctx, store, page); err != nil {
			return err
		}
	}
	return nil
}

// page asks for a page eleven times.
func (w *broker) page(ctx context.Context, store, page string) error {
	var first, slowest time.Duration
	var bytes int64
	if err := w.forgetPeak(); err != nil {
		return err
	}
	rest, _ := w.rss()
	for n := range 11 {
		began := time.Now()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+w.http+page, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", "text/html")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		bytes, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", page, resp.Status)
		}
		if took := time.Since(began); n == 0 {
			first = took
		} else {
			slowest = max(slowest, took)
		}
	}
	_, peak := w.rss()
	fmt.Printf("| %s | %s | %.0f ms | %.0f ms | %d | %.0f MiB |\n", store, page, first.Seconds()*1e3, slowest.Seconds()*1e3, bytes>>10, max(peak-rest, 0))
	return nil
}

// forgetPeak makes the most memory that the process ever held what it holds now (proc(5),
// clear_refs).
func (w *broker) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.cmd.Process.Pid), []byte("5"), 0)
}

// fill writes what the pages show, and returns one of the dead letters.
func (s bigStore) fill(ctx context.Context, address string) (letter weir.DeadMessage, err error) {
	w, err := weir.Open(ctx, address, weir.Options{Logger: warnings()})
	if err != nil {
		return letter, err
	}
	defer w.Close(context.WithoutCancel(ctx))
	if err := s.fillTopics(ctx, w); err != nil {
		return letter, err
	}
	if err := s.fillStreams(ctx, w); err != nil {
		return letter, err
	}
	if err := s.bury(ctx, w); err != nil {
		return letter, err
	}
	some, err := w.DeadMessages(ctx, "jobs", weir.MessageID{}, 1)
	if err != nil {
		return letter, err
	}
	if len(some) == 0 {
		return letter, errors.New("there is no dead letter")
	}
	return some[0], nil
}

func (s bigStore) fillTopics(ctx context.Context, w *weir.Log) error {
	err := each(ctx, s.topics, 50, func(n int) error {
		name := fmt.Sprintf("topic-%d", n)
		if err := w.EnsureTopic(ctx, weir.Topic{Name: name, Partitions: 4}); err != nil {
			return err
		}
		_, err := w.Publish(ctx, weir.Event{Topic: name, Key: []byte("k"), Value: []byte(`{"hello": "world"}`)})
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, s.groups, 200, func(n int) error {
		return w.ResetGroup(ctx, fmt.Sprintf("group-%d", n), fmt.Sprintf("topic-%d", n%s.topics), weir.Earliest)
	})
}

func (s bigStore) fillStreams(ctx context.Context, w *weir.Log) error {
	const aCall = 100
	accounts, err := w.EnsureCategory(ctx, weir.CategorySpec{Name: "accounts"})
	if err != nil {
		return err
	}
	return each(ctx, (s.streams+aCall-1)/aCall, 100, func(n int) error {
		parts := make([]weir.StreamPart, 0, aCall)
		for i := n * aCall; i < min((n+1)*aCall, s.streams); i++ {
			parts = append(parts, weir.StreamPart{Category: accounts, Stream: fmt.Sprintf("account-%d", i), Expected: weir.AnyVersion,
				Events: []weir.NewStreamEvent{{Type: "Opened", Data: []byte(`{"balance": 0}`)}}})
		}
		_, err := w.AppendAll(ctx, parts...)
		return err
	})
}

// bury enqueues messages that fail.
func (s bigStore) bury(ctx context.Context, w *weir.Log) error {
	const aCall = 1000
	if err := w.EnsureQueue(ctx, weir.Queue{Name: "jobs", Settings: weir.QueueSettings{Attempts: 1}}); err != nil {
		return err
	}
	err := each(ctx, (s.dead+aCall-1)/aCall, 10, func(n int) error {
		messages := make([]weir.NewMessage, min(aCall, s.dead-n*aCall))
		for i := range messages {
			messages[i].Value = fmt.Appendf(nil, `{"job": %d}`, n*aCall+i)
		}
		_, err := w.Enqueue(ctx, "jobs", messages...)
		return err
	})
	if err != nil {
		return err
	}
	var failed atomic.Int64
	all := make(chan struct{})
	worker, err := w.Work(ctx, weir.WorkOptions{Queue: "jobs", Concurrency: 2000, Handler: func(context.Context, weir.Job) error {
		if failed.Add(1) == int64(s.dead) {
			close(all)
		}
		return weir.Permanent(errors.New("the address is not known"))
	}})
	if err != nil {
		return err
	}
	select {
	case <-all:
	case <-ctx.Done():
	}
	return errors.Join(ctx.Err(), worker.Close(context.WithoutCancel(ctx)))
}

// each calls do for 0 to n-1, some at a time, until one fails.
func each(ctx context.Context, n, atOnce int, do func(n int) error) error {
	calls, going := errgroup.WithContext(ctx)
	calls.SetLimit(atOnce)
	for i := 0; i < n && going.Err() == nil; i++ {
		calls.Go(func() error { return do(i) })
	}
	return cmp.Or(calls.Wait(), ctx.Err())
}
