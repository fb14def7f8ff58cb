package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/closing"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
)

// Delivery is what all consumers of a process use.
type Delivery struct {
	Log       *eventlog.Log
	Groups    *group.Coordinator
	Publisher *publish.Publisher
	SQL       Positions       // nil: no handler commits in transactions of its own
	Tracer    eventlog.Tracer // nil: no spans
	Logger    *slog.Logger
}

// Consumer reads topics as a member of a group. Its methods may be called concurrently. Handlers
// may call all of them except Close.
type Consumer struct {
	d      *Delivery
	sub    Subscription
	logger *slog.Logger
	slots  chan struct{} // limits the concurrent calls of the handler; nil: no limit

	stop  context.CancelFunc // ends the consumer's own goroutines, not those of its partitions
	ended chan struct{}      // closed when these goroutines have ended
	dirty chan struct{}      // receives when there is something to commit
	again chan struct{}      // receives when the assignment must be read again
	turn  chan struct{}      // the lock for commits: commits of one partition come one after the other

	mu         sync.Mutex // guards what follows
	peer       *group.Peer
	partitions map[group.TopicPartition]*Partition // those whose goroutines have not ended
	pauses     pauses
	closed     bool
}

// Join makes a consumer that is a member of its group, and does nothing yet: call Start, or Leave.
// ctx bounds only the joining.
func (d *Delivery) Join(ctx context.Context, sub Subscription) (*Consumer, error) {
	sub, err := sub.checked()
	if err != nil {
		return nil, fmt.Errorf("consume: the subscription is not complete: %w", err)
	}
	if sub.Name == "" {
		sub.Name = fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())
	}
	c := &Consumer{
		d: d, sub: sub, logger: d.Logger,
		ended: make(chan struct{}), dirty: make(chan struct{}, 1), again: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		partitions: make(map[group.TopicPartition]*Partition), pauses: pauses{all: sub.Paused},
	}
	if sub.Concurrency > 0 {
		c.slots = make(chan struct{}, sub.Concurrency)
	}
	if c.peer, err = c.join(ctx); err != nil {
		return nil, fmt.Errorf("consume as group %q: %w", sub.Group, err)
	}
	return c, nil
}

// Start starts to deliver events, until Close; the end of ctx means nothing, but handlers get its
// values. Call it once.
func (c *Consumer) Start(ctx context.Context) {
	var work context.Context
	work, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	go c.run(work)
}

// Leave ends a consumer that was not started.
func (c *Consumer) Leave(ctx context.Context) error { return c.peer.Leave(ctx) }

func (c *Consumer) join(ctx context.Context) (*group.Peer, error) {
	return c.d.Groups.JoinPeer(ctx, group.PeerConfig{
		Group: c.sub.Group, Topics: c.sub.Topics, Client: c.sub.Name,
		FromLatest: c.sub.Start.kind == latest, FromZero: c.sub.Whole, Session: c.sub.Session, Logger: c.logger,
	})
}

// run works until ctx ends. If the group evicts the consumer, it joins again.
func (c *Consumer) run(ctx context.Context) {
	defer close(c.ended)
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { c.commits(ctx) })
	for ctx.Err() == nil {
		err := c.attend(ctx)
		c.follow(ctx, group.Assignment{}) // no partition is ours any more
		if ctx.Err() != nil || c.Closing() {
			return
		}
		c.logger.Warn("this consumer is no longer a member of its group; joining again", "group", c.sub.Group, "err", err)
		c.rejoin(ctx)
	}
}

// attend works with the consumer's current membership of the group until the membership ends.
func (c *Consumer) attend(ctx context.Context) error {
	peer := c.member()
	alive := make(chan error, 1)
	go func() { alive <- peer.Run(ctx) }()
	for {
		c.follow(ctx, peer.Assignment())
		select {
		case err := <-alive:
			return err
		case <-peer.Changed():
		case <-c.again:
		}
	}
}

func (c *Consumer) rejoin(ctx context.Context) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		peer, err := c.join(ctx)
		if err == nil {
			c.mu.Lock()
			c.peer = peer
			closed := c.closed
			c.mu.Unlock()
			if closed { // Close may have left the group only as the old member
				leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing.Reserve)
				defer cancel()
				if err := peer.Leave(leave); err != nil {
					c.logger.Warn("cannot leave the group yet; other members take over when the session times out at the latest", "group", c.sub.Group, "err", err)
				}
			}
			return
		}
		c.logger.Warn("cannot join the group; trying again", "group", c.sub.Group, "err", err)
		retry.Sleep(ctx, rejoinRetry.Pause(attempt))
	}
}

var rejoinRetry = retry.Policy{First: 200 * time.Millisecond, Max: 5 * time.Second}

// follow starts, ends and gives back partitions as the assignment says. A partition that was lost
// and assigned again starts after its old goroutine has ended: this consumer never runs two calls
// for one partition at the same time.
func (c *Consumer) follow(ctx context.Context, a group.Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, p := range c.partitions {
		is := func(as group.Assigned) bool { return as.TopicPartition == key && as.Since == p.since }
		switch {
		case slices.ContainsFunc(a.Own, is):
		case slices.ContainsFunc(a.Revoking, is):
			p.drain()
		default:
			p.lose()
			p.drain()
			p.cut(fmt.Errorf("%w: the group gave %s/%d to another member, or the store was rewound and the group's position in it is lost", ErrNotAssigned, p.name.Topic, p.name.Partition))
		}
	}
	if c.closed {
		return
	}
	for _, as := range a.Own {
		if c.partitions[as.TopicPartition] == nil {
			c.begin(ctx, as)
		}
	}
	for _, as := range a.Revoking {
		if c.partitions[as.TopicPartition] == nil { // this consumer does not work on it any more: it only has to be given back
			c.begin(ctx, as)
			c.partitions[as.TopicPartition].drain() // then giveBack releases it
		}
	}
}

// begin starts work on a partition. The caller holds c.mu.
func (c *Consumer) begin(ctx context.Context, as group.Assigned) {
	name := TopicPartition{Topic: as.Topic, Partition: as.TopicPartition.Partition}
	p := &Partition{
		c: c, name: name, key: as.TopicPartition, since: as.Since, member: c.peer.ID(), ended: make(chan struct{}),
		progress: progress{handled: as.Position, epoch: as.Epoch, committed: as.Position},
		control:  control{paused: c.pauses.holds(name)},
		reader:   reader{log: c.d.Log, id: as.Log, next: as.Position, epoch: as.Epoch},
	}
	// calls and draining do not end with ctx: Close decides how long a running call may take.
	calls, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	draining, drain := context.WithCancel(calls)
	p.cut, p.drain = cut, drain
	c.partitions[p.key] = p
	go p.run(calls, draining)
	go c.giveBack(ctx, p)
}

// giveBack waits until a partition's goroutine has ended, then commits what was handled and gives
// the partition back.
func (c *Consumer) giveBack(ctx context.Context, p *Partition) {
	<-p.ended
	defer p.cut(nil)
	// A lost partition is not released: this consumer may get it back with the same Since. But
	// after a commit of unknown outcome it is released: then its next holder, perhaps this
	// consumer, starts at the offset in the store.
	for attempt := 1; ctx.Err() == nil && (!p.isLost() || p.unsure) && !c.Closing(); attempt++ {
		err := c.commit(ctx, p)
		if err == nil {
			err = c.member().Release(ctx, p.key)
		}
		if err == nil || errors.Is(err, group.ErrFenced) {
			break
		}
		c.logger.Warn("a partition cannot be released; trying again", p.attrs("err", err)...)
		retry.Sleep(ctx, rejoinRetry.Pause(attempt))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed { // Close commits what is left
		delete(c.partitions, p.key)
	}
	poke(c.again)
}

// enter waits until one more call may run. It returns false if ctx ends first.
func (c *Consumer) enter(ctx context.Context) bool {
	if c.slots == nil {
		return true
	}
	select {
	case c.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Consumer) leave() {
	if c.slots != nil {
		<-c.slots
	}
}

// member returns the consumer's current membership of the group.
func (c *Consumer) member() *group.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}

// Closing reports whether Close was called: no further call of the handler begins.
func (c *Consumer) Closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Over reports whether the consumer has ended.
func (c *Consumer) Over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// all lists the consumer's partitions, by name.
func (c *Consumer) all() []*Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Partition, 0, len(c.partitions))
	for _, p := range c.partitions {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Partition) int { return a.name.compare(b.name) })
	return list
}

func (tp TopicPartition) compare(other TopicPartition) int {
	if d := strings.Compare(tp.Topic, other.Topic); d != 0 {
		return d
	}
	return int(tp.Partition) - int(other.Partition)
}

// poke puts a value into a channel of capacity 1, unless it is full.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
