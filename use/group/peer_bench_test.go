package group_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// BenchmarkTenPeersJoin has ten peers share 2,000 partitions, one peer coming after the other. Each
// partition is given back by a goroutine of its own, as the Go library does.
func BenchmarkTenPeersJoin(b *testing.B) {
	const peers, partitions = 10, 2000
	log, err := eventlog.Open(b.Context(), memory.New(), eventlog.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	b.Cleanup(func() { cancel(); running.Wait() })
	if _, err := log.CreateTopic(b.Context(), eventlog.TopicSpec{Name: "orders", Partitions: partitions}); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		joinAndShare(b, log, group.PeerConfig{Group: fmt.Sprint("g", i), Topics: []string{"orders"}, Logger: quiet}, peers, partitions)
	}
}

func joinAndShare(b *testing.B, log *eventlog.Log, cfg group.PeerConfig, peers, partitions int) {
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	balanced := make(chan struct{}, peers)
	groups := group.New(log, group.Config{})
	for range peers {
		p, err := groups.JoinPeer(ctx, cfg)
		if err != nil {
			b.Fatal(err)
		}
		running.Go(func() { _ = p.Run(ctx) })
		running.Go(func() { giveBack(ctx, p, partitions/peers, balanced) })
	}
	for range peers {
		<-balanced
	}
}

// giveBack gives back what a peer is asked for until ctx ends, and tells once that the peer has no
// more than its share.
func giveBack(ctx context.Context, p *group.Peer, share int, balanced chan<- struct{}) {
	var releases sync.WaitGroup
	defer releases.Wait()
	begun, told := make(map[group.TopicPartition]bool), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Changed():
		}
		a := p.Assignment()
		for _, r := range a.Revoking {
			if !begun[r.TopicPartition] {
				begun[r.TopicPartition] = true
				releases.Go(func() { _ = p.Release(ctx, r.TopicPartition) })
			}
		}
		if !told && len(a.Own) == share && len(a.Revoking) == 0 {
			told = true
			balanced <- struct{}{}
		}
	}
}
