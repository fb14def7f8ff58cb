package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// plan is what there is to read of one topic: each partition from one offset up to where it ended
// when the command began.
type plan struct {
	topic string

	mu    sync.Mutex      // guards all below: the client assigns and revokes partitions while we read
	next  map[int32]int64 // the next offset to read
	until map[int32]int64 // where the partition ended
	ours  map[int32]bool  // partitions that are ours to read
	dealt bool            // false until the group has assigned its partitions

	// Only the command uses these, not the client.
	missing map[int32]bool // partitions that cannot be read now, because their part of the store does not answer
	tried   time.Time      // when it was last tried to read these
}

// notThere reports whether an error says that the part of the store that has a partition, such as a
// shard, does not answer. Other partitions can be read.
func notThere(err error) bool {
	return errors.Is(err, kerr.KafkaStorageError) || errors.Is(err, kerr.RequestTimedOut)
}

func (c *consumeCmd) plan(ctx context.Context, admin *kadm.Client, t *terminal) (*plan, error) {
	p := &plan{topic: c.Topic, next: map[int32]int64{}, until: map[int32]int64{}, ours: map[int32]bool{}, dealt: c.Group == "", missing: map[int32]bool{}, tried: time.Now()}
	from, err := resolveEach(ctx, admin, c.From, c.Topic)
	if err != nil {
		return nil, err
	}
	end, err := admin.ListEndOffsets(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	var missing error
	for number, at := range from[c.Topic] {
		if c.Partition != nil && number != *c.Partition {
			continue
		}
		if err := cmp.Or(at.Err, end[c.Topic][number].Err); err != nil && (c.Group != "" || !notThere(err)) {
			return nil, err
		} else if err != nil {
			p.missing[number], missing = true, err
			continue
		}
		if c.From.exact() && c.From.offset != at.Offset {
			fmt.Fprintf(t.err, "weir: partition %d does not have offset %d; reading from offset %d\n", number, c.From.offset, at.Offset)
		}
		p.next[number], p.until[number] = at.Offset, end[c.Topic][number].Offset
		p.ours[number] = c.Group == ""
	}
	switch {
	case len(p.next) == 0 && missing != nil:
		return nil, missing
	case len(p.next) == 0:
		return nil, failed(fmt.Errorf("consume %q: the topic has no partition %d; it has %d, numbered from 0",
			c.Topic, *c.Partition, len(from[c.Topic])), "")
	}
	return p, nil
}

// without names the partitions that cannot be read now.
func (p *plan) without() string {
	numbers := slices.Sorted(maps.Keys(p.missing))
	text := fmt.Sprint(numbers[0])
	for _, n := range numbers[1:] {
		text += fmt.Sprint(", ", n)
	}
	if len(numbers) == 1 {
		return "partition " + text
	}
	return "partitions " + text
}

// again plans the partitions that could not be read, and returns where to begin in those that can
// be read now.
func (c *consumeCmd) again(ctx context.Context, admin *kadm.Client, t *terminal, p *plan) map[string]map[int32]kgo.Offset {
	p.tried = time.Now()
	now, err := c.plan(ctx, admin, &terminal{err: io.Discard}) // c.plan has printed the same before
	if err != nil {                                            // the partitions stay missing
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[int32]kgo.Offset{}
	for number := range p.missing {
		if at, is := now.next[number]; is {
			p.next[number], p.until[number], p.ours[number] = at, now.until[number], true
			found[number] = kgo.NewOffset().At(at)
			delete(p.missing, number)
			fmt.Fprintf(t.err, "weir: partition %d can be read now\n", number)
		}
	}
	return map[string]map[int32]kgo.Offset{p.topic: found}
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
		// Other members have all partitions. With partitions, the client calls begin next, which
		// sets dealt and the offsets.
		p.dealt = true
	}
}

// begin replaces the client's default by the offset at which this command is to begin, in
// partitions where the group has committed nothing.
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

// revoked commits before another member begins where we ended. If the commit fails, that member
// reads again what we printed since the last commit, as is usual in groups.
func (p *plan) revoked(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
	_ = client.CommitMarkedOffsets(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveUp(partitions)
}

// lost is called when the membership is lost: what is left to read is known again once the group
// has assigned partitions.
func (p *plan) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dealt = false
	p.giveUp(partitions)
}

// giveUp notes that partitions are not ours. p.mu is held.
func (p *plan) giveUp(partitions map[string][]int32) {
	for _, number := range partitions[p.topic] {
		p.ours[number] = false
	}
}

// take moves the next offset past a record that was read, and reports whether the record was there
// when the command began.
func (p *plan) take(r *kgo.Record) (planned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[r.Partition] = r.Offset + 1
	return r.Offset < p.until[r.Partition]
}

// rest counts the offsets that are ours and not read yet; -1 until the group has assigned its
// partitions.
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

// left returns the partitions that are not read to their end, and where to go on.
func (p *plan) left() map[int32]kgo.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := map[int32]kgo.Offset{}
	for number, ours := range p.ours {
		if ours && p.next[number] < p.until[number] {
			left[number] = kgo.NewOffset().At(p.next[number])
		}
	}
	return left
}

// giveUp adds to p.missing the partitions that are not read to their end, if the broker says of
// each of them that its part of the store does not answer. The command's own client does not report
// that: it tries again. So giveUp asks with another client.
func (c *consumeCmd) giveUp(ctx context.Context, p *plan) error {
	left := p.left()
	client, err := c.connect(ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.topic: left}), kgo.KeepRetryableFetchErrors(), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer cancel()
	refused := map[int32]bool{}
	for len(refused) < len(left) {
		fetches := client.PollRecords(within, 1)
		for _, failure := range fetches.Errors() {
			if notThere(failure.Err) {
				refused[failure.Partition] = true
			}
		}
		if within.Err() != nil || fetches.NumRecords() > 0 {
			return ctx.Err()
		}
	}
	maps.Copy(p.missing, refused)
	return nil
}

// reachability remembers how the client's last try to connect went. The client itself tries again
// for ever and says nothing.
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
