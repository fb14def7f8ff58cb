package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/use/group"
)

// Consumer reads topics as a member of a group. Its methods may be called concurrently. Handlers
// may call all of them except Close.
type Consumer struct {
	log    *Log
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
	partitions map[group.TopicPartition]*partition // until their goroutines have ended
	pauses     pauses
	closed     bool
}

// Consume joins the group and starts to deliver events to the subscription's handler. ctx bounds
// only the joining; the consumer works until it or the Log is closed. While the store is
// unavailable the consumer waits.
func (l *Log) Consume(ctx context.Context, sub Subscription) (*Consumer, error) {
	return l.consume(ctx, sub, false)
}

// consume is Consume. If paused is true the consumer begins with all partitions paused.
func (l *Log) consume(ctx context.Context, sub Subscription, paused bool) (*Consumer, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "consume as group %q", sub.Group)
	}
	sub, err := sub.checked()
	if err != nil {
		return nil, fmt.Errorf("consume: the subscription is not complete: %w", err)
	}
	if sub.Name == "" {
		sub.Name = fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())
	}
	c := &Consumer{
		log: l, sub: sub, logger: l.logger,
		ended: make(chan struct{}), dirty: make(chan struct{}, 1), again: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		partitions: make(map[group.TopicPartition]*partition), pauses: pauses{all: paused},
	}
	if sub.Concurrency > 0 {
		c.slots = make(chan struct{}, sub.Concurrency)
	}
	if c.peer, err = c.join(ctx); err != nil {
		return nil, fmt.Errorf("consume as group %q: %w", sub.Group, err)
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	if !l.begins(c, work) {
		stop()
		return nil, errors.Join(fmt.Errorf("consume as group %q: %w", sub.Group, ErrClosed), c.peer.Leave(ctx))
	}
	return c, nil
}

// begins runs a consumer, unless the Log was closed.
func (l *Log) begins(c *Consumer, work context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.consumers[c] = struct{}{}
	go c.run(work)
	return true
}

func (c *Consumer) join(ctx context.Context) (*group.Peer, error) {
	return c.log.groups.JoinPeer(ctx, group.PeerConfig{
		Group: c.sub.Group, Topics: c.sub.Topics, Client: c.sub.Name,
		FromLatest: c.sub.Start.kind == latest, FromZero: c.sub.whole, Session: c.sub.Session, Logger: c.logger,
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
		if ctx.Err() != nil || c.isClosed() {
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
				leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeReserve)
				defer cancel()
				if err := peer.Leave(leave); err != nil {
					c.logger.Warn("cannot leave the group; other members take over when the session times out", "group", c.sub.Group, "err", err)
				}
			}
			return
		}
		c.logger.Warn("cannot join the group; trying again", "group", c.sub.Group, "err", err)
		sleep(ctx, rejoinRetry.pause(attempt))
	}
}

var rejoinRetry = Retry{First: 200 * time.Millisecond, Max: 5 * time.Second}

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
			p.cut(fmt.Errorf("%w: the group assigned %s/%d to another member", ErrNotAssigned, p.name.Topic, p.name.Partition))
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
	p := &partition{
		c: c, name: name, key: as.TopicPartition, since: as.Since, member: c.peer.ID(),
		ended: make(chan struct{}), handled: as.Position, epoch: as.Epoch, committed: as.Position,
		paused: c.pauses.holds(name),
	}
	p.reader = reader{log: c.log.log, of: name, id: as.Log, from: p, next: as.Position, epoch: as.Epoch}
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
func (c *Consumer) giveBack(ctx context.Context, p *partition) {
	<-p.ended
	defer p.cut(nil)
	// A lost partition is not released: this consumer may get it back with the same Since. But
	// after a commit of unknown outcome it is released: then its next holder, perhaps this
	// consumer, starts at the offset in the store.
	for attempt := 1; ctx.Err() == nil && (!p.isLost() || p.unsure) && !c.isClosed(); attempt++ {
		err := c.commit(ctx, p)
		if err == nil {
			err = c.member().Release(ctx, p.key)
		}
		if err == nil || errors.Is(err, group.ErrFenced) {
			break
		}
		c.logger.Warn("a partition cannot be released; trying again", p.attrs("err", err)...)
		sleep(ctx, rejoinRetry.pause(attempt))
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

// deadLetters asks the subscription for an event's dead letters.
func (c *Consumer) deadLetters(ctx context.Context, f Failure) (letters []Event, err error) {
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			letters, err = nil, panicked
			c.logger.Error("DeadLetter panicked", "topic", f.Event.Topic, "partition", f.Event.Partition, "offset", f.Event.Offset, "panic", v, "stack", string(panicked.Stack))
		}
	}()
	return c.sub.DeadLetter(ctx, f)
}

// member returns the consumer's current membership of the group.
func (c *Consumer) member() *group.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}

func (c *Consumer) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// isOver reports whether the consumer has ended.
func (c *Consumer) isOver() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// all lists the consumer's partitions, by name.
func (c *Consumer) all() []*partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*partition, 0, len(c.partitions))
	for _, p := range c.partitions {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *partition) int { return a.name.compare(b.name) })
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
