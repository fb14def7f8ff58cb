package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir"
)

const (
	restored   = "restored" // the topic that loses its end, of one partition
	restoreMax = 60 * time.Second
)

// follower is somebody who reads a topic from its start on, across all that happens to it.
type follower struct {
	who string
	mu  sync.Mutex // guards got
	got []string
}

func (f *follower) note(value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, value)
}

// has says whether all values came, each for the first time after the value before it came for the
// first time.
func (f *follower) has(values []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := -1
	for _, v := range values {
		i := slices.Index(f.got, v)
		if i <= at {
			return false
		}
		at = i
	}
	return true
}

func (f *follower) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("%d events, the last of them %q", len(f.got), f.got[max(0, len(f.got)-3):])
}

// judgeBackup sees D3: a backup is put back under brokers and readers that run. What was
// acknowledged after it is lost, and what comes next has the same offsets in a later epoch. Nobody
// who read what was lost passes over what is new.
func (w *world) judgeBackup(ctx context.Context) error {
	a := w.brokers[0]
	if err := w.insist(ctx, "POST", "/v1/topics", map[string]any{"name": restored, "partitions": 1}); err != nil {
		return err
	}
	kept, lost, fresh := numbered("kept", 10), numbered("lost", 10), numbered("fresh", 25)
	if _, err := w.publishAll(ctx, a, restored, 0, kept); err != nil {
		return err
	}
	restore, err := w.backup(ctx)
	if err != nil {
		return fmt.Errorf("back the store up: %w", err)
	}
	if _, err := w.publishAll(ctx, a, restored, 0, lost); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	followers, err := w.followAll(reading)
	if err != nil {
		return err
	}
	read := slices.Concat(kept, lost)
	if f := behind(ctx, followers, read); f != nil {
		return fmt.Errorf("%s has not read %s within %v: it has %s", f.who, restored, restoreMax, f.last())
	}
	client, err := w.kafkaClient(w.brokers) // those of before were closed with all clients
	if err != nil {
		return err
	}
	epoch, err := epochOf(ctx, client)
	if err != nil {
		return err
	}
	w.history.Add("a backup is put back")
	if err := restore(); err != nil {
		return fmt.Errorf("put a backup back: %w", err)
	}
	first, err := w.publishAll(ctx, w.brokers[1], restored, 0, fresh)
	if err != nil {
		return err
	}
	if first != int64(len(kept)) {
		w.model.Broken("D3", nil, "the store was put back to %d events, and the next one is at %d", len(kept), first)
	}
	if f := behind(ctx, followers, slices.Concat(read, fresh)); f != nil {
		w.model.Broken("D3", nil, "a backup was put back, and %v later %s has not read all that came since: it has %s", restoreMax, f.who, f.last())
	}
	for _, b := range w.brokers {
		if err := w.judgeEpoch(ctx, b, epoch, int64(len(kept))); err != nil {
			return err
		}
		var got []string
		err := retried(ctx, func() (err error) { // 503: on shards, each that was put back begins an epoch
			got, err = pagesOf(ctx, b, restored, 1)
			return err
		})
		if want := slices.Concat(kept, fresh); !slices.Equal(unique(got), want) {
			w.model.Broken("D3", nil, "a backup was put back, and at %s the topic has %q (%v), want %q", b.name, got, err, want)
		}
	}
	stop()
	return w.insist(ctx, "DELETE", "/v1/topics/"+restored, nil)
}

// unique drops what was published again, since its outcome was unknown.
func unique(values []string) (once []string) {
	for _, v := range values {
		if !slices.Contains(once, v) {
			once = append(once, v)
		}
	}
	return once
}

// backup copies the store, shard by shard; restore puts the copy back under those that use it.
func (w *world) backup(ctx context.Context) (restore func() error, err error) {
	var all []func() error
	for _, e := range w.engines {
		restore, err := e.backup(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, restore)
	}
	return func() error {
		for _, restore := range all {
			if err := restore(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// behind returns a follower who has not read all of the values in time, or nil.
func behind(ctx context.Context, all []*follower, values []string) *follower {
	for late := time.Now().Add(restoreMax); ; pause(ctx, 50*time.Millisecond) {
		i := slices.IndexFunc(all, func(f *follower) bool { return !f.has(values) })
		if i < 0 || ctx.Err() != nil {
			return nil
		}
		if time.Now().After(late) {
			return all[i]
		}
	}
}

// followAll reads the topic through each door that can wait.
func (w *world) followAll(ctx context.Context) (all []*follower, err error) {
	add := func(who string) *follower {
		f := &follower{who: who}
		all = append(all, f)
		return f
	}
	for _, b := range w.brokers {
		client, err := w.kafkaClient([]*broker{b}, kgo.ConsumeTopics(restored), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return nil, err
		}
		f := add("Kafka at " + b.name)
		go func() {
			for ctx.Err() == nil {
				fetches := client.PollFetches(ctx)
				fetches.EachError(func(_ string, _ int32, err error) { w.history.Add(fmt.Sprintf("%s: %v", f.who, err)) })
				fetches.EachRecord(func(r *kgo.Record) { f.note(string(r.Value)) })
			}
		}()
		go followSSE(ctx, b, add("SSE at "+b.name))
	}
	log, err := weir.Open(ctx, w.url, weir.Options{Logger: quiet})
	if err != nil {
		return nil, err
	}
	w.atEnd(func() error { return log.Close(context.WithoutCancel(ctx)) })
	f := add("a Go consumer")
	_, err = log.Consume(ctx, weir.Subscription{Group: restored, Topics: []string{restored}, Handler: func(_ context.Context, e weir.Event) error {
		f.note(string(e.Value))
		return nil
	}})
	return all, err
}

// whereLost finds in a refusal from where a stream is to be read on.
var whereLost = regexp.MustCompile(`from=([^"\s]+)`)

// followSSE resumes after the last event that came, by its id; and if it is told that this event
// was lost, where the loss began.
func followSSE(ctx context.Context, b *broker, f *follower) {
	from, last := "earliest", ""
	for ctx.Err() == nil {
		resp, err := b.openStream(ctx, restored, from, last)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			var e struct{ Value string }
			told := whereLost.FindStringSubmatch(lines.Text())
			switch {
			case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && told != nil:
				from, last = told[1], ""
			case field == "id":
				last = value
			case field == "data" && json.Unmarshal([]byte(value), &e) == nil && e.Value != "":
				f.note(e.Value)
			}
		}
		resp.Body.Close()
		pause(ctx, 100*time.Millisecond)
	}
}

// epochOf asks for the leader epoch that the topic is in.
func epochOf(ctx context.Context, client *kgo.Client) (int32, error) {
	var epoch int32
	return epoch, retried(ctx, func() error {
		ends, err := kadm.NewClient(client).ListEndOffsets(ctx, restored)
		end, _ := ends.Lookup(restored, 0)
		epoch = end.LeaderEpoch
		return errors.Join(err, end.Err)
	})
}

// retried asks until there is an answer: connections of before a restart are gone, and processes
// enter epochs.
func retried(ctx context.Context, ask func() error) (err error) {
	for range triesMax {
		if err = ask(); err == nil {
			break
		}
		pause(ctx, 100*time.Millisecond)
	}
	return err
}

// judgeEpoch sees that a broker is in a later epoch, and tells where the epoch before it ended.
func (w *world) judgeEpoch(ctx context.Context, b *broker, before int32, ended int64) error {
	client, err := w.kafkaClient([]*broker{b})
	if err != nil {
		return err
	}
	now, err := epochOf(ctx, client)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = restored
	partition := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	partition.LeaderEpoch, partition.CurrentLeaderEpoch = before, -1
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	var answer *kmsg.OffsetForLeaderEpochResponse
	if err := retried(ctx, func() error {
		if answer, err = req.RequestWith(ctx, client); err != nil {
			return err
		}
		if said := kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode); kerr.IsRetriable(said) {
			return said
		}
		return nil
	}); err != nil {
		return err
	}
	if at := answer.Topics[0].Partitions[0]; now <= before || at.ErrorCode != 0 || at.EndOffset != ended {
		w.model.Broken("D3", nil, "a backup was put back: at %s epoch %d became %d, and the one before ended at %d (error %d), want %d", b.name, before, now, at.EndOffset, at.ErrorCode, ended)
	}
	return nil
}
