package cli

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// plan is what there is to read of one topic: each partition from one offset up to where it ended when the command began.
type plan struct {
	topic string

	mu    sync.Mutex      // guards all below: the client assigns and revokes partitions while we read
	next  map[int32]int64 // the next offset to read
	until map[int32]int64 // where the partition ended
	ours  map[int32]bool  // partitions that are ours to read
	dealt bool            // false until the group has assigned its partitions
}

func (c *consumeCmd) plan(ctx context.Context, admin *kadm.Client, t *terminal) (*plan, error) {
	from, err := resolve(ctx, admin, c.From, c.Topic)
	if err != nil {
		return nil, err
	}
	end, err := admin.ListEndOffsets(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	p := &plan{topic: c.Topic, next: map[int32]int64{}, until: map[int32]int64{}, ours: map[int32]bool{}, dealt: c.Group == ""}
	for number, at := range from[c.Topic] {
		if c.Partition != nil && number != *c.Partition {
			continue
		}
		if c.From.exact() && c.From.offset != at.Offset {
			fmt.Fprintf(t.err, "weir: partition %d does not have offset %d; reading from offset %d\n", number, c.From.offset, at.Offset)
		}
		p.next[number], p.until[number] = at.Offset, end[c.Topic][number].Offset
		p.ours[number] = c.Group == ""
	}
	if len(p.next) == 0 {
		return nil, failed(fmt.Errorf("consume %q: the topic has no partition %d; it has %d, numbered from 0",
			c.Topic, *c.Partition, len(from[c.Topic])), "")
	}
	return p, nil
}

// options returns the client's options for what to read.
func (p *plan) options(group string) []kgo.Opt {
	if group == "" {
		offsets := map[int32]kgo.Offset{}
		for number, at := range p.next {
			offsets[number] = kgo.NewOffset().At(at)
		}
		return []kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.topic: offsets})}
	}
	return []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(p.topic),
		kgo.AutoCommitMarks(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(p.assigned),
		kgo.AdjustFetchOffsetsFn(p.begin),
		kgo.OnPartitionsRevoked(p.revoked),
		kgo.OnPartitionsLost(p.lost),
	}
}

func (p *plan) assigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(partitions[p.topic]) == 0 {
		p.dealt = true // other members have all partitions; otherwise the client calls begin next, which sets the offsets
	}
}

// begin replaces the client's default by the offset at which this command is to begin, in partitions where the group has committed nothing.
func (p *plan) begin(_ context.Context, fetched map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number, offset := range fetched[p.topic] {
		if committed := offset.EpochOffset().Offset; committed >= 0 {
			p.next[number] = committed
		} else {
			fetched[p.topic][number] = kgo.NewOffset().At(p.next[number])
		}
		p.ours[number] = true
	}
	p.dealt = true
	return fetched, nil
}

// revoked commits before another member begins where we ended. If the commit fails, that member reads again what we
// printed since the last commit, as is usual in groups.
func (p *plan) revoked(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
	_ = client.CommitMarkedOffsets(ctx)
	p.lost(ctx, client, partitions)
}

func (p *plan) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, number := range partitions[p.topic] {
		p.ours[number] = false
	}
}

// take moves the next offset past a record that was read, and reports whether the record was there when the command began.
func (p *plan) take(r *kgo.Record) (planned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[r.Partition] = r.Offset + 1
	return r.Offset < p.until[r.Partition]
}

// rest counts the offsets that are ours and not read yet; -1 until the group has assigned its partitions.
func (p *plan) rest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dealt {
		return -1
	}
	var n int64
	for number, ours := range p.ours {
		if ours {
			n += max(0, p.until[number]-p.next[number])
		}
	}
	return n
}

// reachability remembers how the client's last try to connect went. The client itself tries again for ever and says nothing.
type reachability struct {
	mu  sync.Mutex // guards err
	err error      // nil after a try that worked
}

// OnBrokerConnect is called by the client after each try to connect.
func (r *reachability) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *reachability) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
