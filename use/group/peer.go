package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
)

const (
	peerSessionMin = time.Second
	peerSessionMax = 30 * time.Minute
	peersMax       = 2000 // peers of one group
	peerTopicsMax  = 1000 // topics of one peer
)

// PeerSession is the session of a peer whose PeerConfig has none.
const PeerSession = 10 * time.Second

// PeerConfig sets a Peer up. The zero value of every field but Group and Topics means its default.
type PeerConfig struct {
	Group      string
	Topics     []string      // by name; one that does not exist yet is read once it does
	Client     string        // a name for people; at most 255 bytes of UTF-8
	By         string        // as Join.By
	FromLatest bool          // where nothing is committed, begin at the end, except in partitions that are added later; default: at the beginning
	FromZero   bool          // where nothing is committed, begin at offset 0, also where the partition no longer has it
	Session    time.Duration // after so long without a heartbeat the other peers take over; 1 s to 30 min, default 10 s; see spaced
	Heartbeat  time.Duration // between two heartbeats, at most a third of Session; default 3 s, or that third; see spaced
	Look       time.Duration // between two polls for what other processes changed in the group; default 1 s
	Logger     *slog.Logger  // default: the coordinator's
}

func (c PeerConfig) withDefaults() PeerConfig {
	c.Session = cmp.Or(c.Session, PeerSession)
	c.Heartbeat = cmp.Or(c.Heartbeat, min(3*time.Second, c.Session/3))
	c.Look = cmp.Or(c.Look, time.Second)
	c.Topics = slices.Compact(slices.Sorted(slices.Values(c.Topics)))
	c.Client = strings.ReplaceAll(c.Client, "\x00", "\ufffd") // SQL reads what is stored, and PostgreSQL's text cannot hold it
	return c
}

// spaced returns the configuration for a store that takes one commit in so long a time: heartbeats
// are at least that far apart, and a session has time for five. A join alone takes three commits
// after its heartbeat was sent, and the next heartbeat one. Others, older weirs among them, judge a
// peer by the session that its heartbeats name.
func (c PeerConfig) spaced(every time.Duration) PeerConfig {
	c.Heartbeat, c.Session = max(c.Heartbeat, every), max(c.Session, 5*every)
	return c
}

func (c PeerConfig) check() error {
	switch {
	case c.Group == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidGroup)
	case len(c.Group) > nameMax:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalidGroup, len(c.Group), nameMax)
	case c.Session < peerSessionMin || c.Session > peerSessionMax:
		return fmt.Errorf("join group %q: %w: %v is outside [%v, %v]", c.Group, ErrInvalidSession, c.Session, peerSessionMin, peerSessionMax)
	case c.Heartbeat < 0 || c.Heartbeat > c.Session/3:
		return fmt.Errorf("join group %q: %w: the heartbeat interval is %v; it must be at most a third of the session timeout, %v", c.Group, ErrInvalidSession, c.Heartbeat, c.Session)
	case c.Look < 0:
		return fmt.Errorf("join group %q: Look is %v: it must not be negative", c.Group, c.Look)
	case len(c.Topics) == 0:
		return fmt.Errorf("join group %q: no topics are given: give at least 1", c.Group)
	case len(c.Topics) > peerTopicsMax:
		return fmt.Errorf("join group %q: %w: %d topics, the limit is %d", c.Group, ErrTooLarge, len(c.Topics), peerTopicsMax)
	case len(c.Client) > clientIDMax:
		return fmt.Errorf("join group %q: %w: the client's name has %d bytes, the limit is %d", c.Group, ErrTooLarge, len(c.Client), clientIDMax)
	case !utf8.ValidString(c.Client): // it is part of the peer's name in the group, which is kept as text
		return fmt.Errorf("join group %q: %w", c.Group, &eventlog.InvalidError{What: "client name", Value: c.Client, Why: "it is not UTF-8"})
	}
	for _, topic := range c.Topics {
		if err := eventlog.CheckTopicName(topic); err != nil {
			return fmt.Errorf("join group %q: %w", c.Group, err)
		}
	}
	return nil
}

// Peer is a member of a group whose members coordinate through the store, without a broker or a
// listener. Any number of peers, in any number of processes, share the partitions of their topics.
// Methods may be called concurrently.
//
// A peer that its group evicted, because it sent no heartbeat within its session timeout, is fenced
// for good: Run returns ErrFenced, Assignment is empty, and this Peer can commit nothing more. Call
// JoinPeer for a new one.
type Peer struct {
	roster
	beside  Beside                                                               // as Config.Beside
	fetch   func(context.Context, string, []TopicPartition) ([]Committed, error) // as Coordinator.Fetch
	cfg     PeerConfig
	self    storedPeer
	changed chan struct{} // holds one value when Assignment changed
	over    chan struct{} // closed when the peer is no longer a member

	before map[eventlog.TopicID]int // how many partitions its topics had when it joined

	heartbeatVersion eventlog.Version // of the last heartbeat; used only by JoinPeer and Run
	heartbeatTaken   time.Time        // when this process heard that the store took the last heartbeat; used likewise

	mu            sync.Mutex                          // guards what follows
	group         membership                          // as last read from the store; version 0: not a member yet
	held          map[TopicPartition]*Assigned        // the peer's partitions whose position is known
	epoch         int32                               // the leader epoch in which these positions were read, or found to be there still (recall); or noEpoch
	recalling     int32                               // the epoch of the recall that is in progress, or noEpoch
	unsettled     bool                                // since the recall began, a position of an earlier epoch was noted
	lastHeartbeat time.Time                           // when the last heartbeat that the store took was sent
	unsure        eventlog.Version                    // a commit that checks this version may still be in flight
	open          map[TopicPartition]eventlog.Version // the version that the last commit of a partition checks, if it may still be in flight
	releasing     map[*release]bool                   // the calls of Release that wait for the turn
	end           error                               // why the peer is no longer a member
}

// Assignment is what a peer may work on.
type Assignment struct {
	Generation int32      // counts the changes of the group
	Own        []Assigned // may be read, handled and committed; sorted by topic and partition
	Revoking   []Assigned // another peer waits for them: finish what is begun, commit it, and Release them
}

// Assigned is a partition that a peer has.
type Assigned struct {
	Topic string
	TopicPartition
	Log      eventlog.Partition
	Position eventlog.Offset // of the next record to handle: the last committed position, or where the group begins
	Epoch    int32           // the leader epoch in which the record before Position was read; if it is unknown, the log's epoch just before Position was read
	// Since is the generation that gave it to this peer, plus one for each time that the store
	// lost its position: a partition that is released and assigned again, or begins again, has
	// another Since.
	Since int32

	base    *int64          // the base of Position (see Beside); nil: unknown; guarded by p.mu, as all below
	reached eventlog.Offset // Position, or a higher position that the handler's transactions have committed (Claimed)
	stored  bool            // the store had that position, so a rewind may lose it
}

// errLeft is the end of a peer that left.
var errLeft = fmt.Errorf("%w: this member left the group", ErrFenced)

// JoinPeer makes a new peer of a group. When it returns, the peer has its share of the free
// partitions; Run must then keep it alive. It costs seven store calls, one more with Config.Beside,
// up to two more if the group has committed nothing in a topic, one for each topic that does not
// exist yet, and more if others join at the same time. The peer gets the partitions of expired
// members only after half of their session and a heartbeat, because it cannot know whether the
// store was unavailable to those members.
//
// ErrInconsistentProtocol: members that cannot share it are in the group, such as Kafka consumers
// with an assignor of their own. Other Kafka consumers share it from then on (migrate.go).
// ErrFull, ErrTooMany, ErrTooLarge, ErrInvalidGroup and ErrInvalidSession refuse the peer;
// ErrUnavailable and eventlog.ErrUnsure mean that the store did not answer.
func (c *Coordinator) JoinPeer(ctx context.Context, cfg PeerConfig) (*Peer, error) {
	cfg = cfg.withDefaults()
	cfg.Logger = cmp.Or(cfg.Logger, c.logger)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := c.mayChange(cfg.Group); err != nil {
		return nil, err
	}
	cfg = cfg.spaced(c.log.CommitEvery())
	p := &Peer{
		roster: c.newRoster(cfg.Group, cmp.Or(cfg.Client, "peer")+"-"+rand.Text(), cfg.By),
		beside: c.cfg.Beside, fetch: c.Fetch, cfg: cfg,
		self:    storedPeer{Client: cfg.Client, Host: ownerHost(), Topics: cfg.Topics, SessionMS: cfg.Session.Milliseconds(), KnowsHosts: true},
		changed: make(chan struct{}, 1), over: make(chan struct{}),
		before: make(map[eventlog.TopicID]int), held: make(map[TopicPartition]*Assigned), epoch: c.log.LeaderEpoch(), recalling: noEpoch, open: make(map[TopicPartition]eventlog.Version), releasing: make(map[*release]bool),
	}
	p.logger = cfg.Logger.With("group", cfg.Group, "peer", p.id)
	err := p.enter(ctx)
	if errors.Is(err, ErrInconsistentProtocol) {
		if why := c.upgrade(ctx, cfg.Group, cfg.By); why == nil {
			err = p.enter(ctx)
		} else if errors.Is(why, ErrNotConsumerGroup) {
			err = fmt.Errorf("%w (%w)", err, why)
		} else {
			err = why
		}
	}
	if err != nil {
		p.withdraw(ctx)
		return nil, fmt.Errorf("join group %q: %w", cfg.Group, err)
	}
	return p, nil
}

// enter makes the peer a member and takes free partitions.
func (p *Peer) enter(ctx context.Context) error {
	if err := p.lookAround(ctx); err != nil {
		return err
	}
	// Read first: a peer that may not be a member must not write a heartbeat.
	r, err := p.read(ctx)
	if err == nil && r.version == 0 {
		err = p.census.admit(p.cfg.Group, p.cfg.By)
	}
	if err != nil {
		return err
	}
	if err := p.heartbeat(ctx, peerSessionMax); err != nil { // as long as the caller waits
		return err
	}
	for try := 1; ; try++ {
		if err := p.reconcile(ctx, try == 1); err != nil {
			return err
		}
		if err := p.fill(ctx); try == peerTries || !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrUnsure) {
			return err // if it is stale or unsure, others may have changed the group meanwhile: read it again
		}
	}
}

// lookAround notes which partitions exist already: those that are added later are read from their
// beginning.
func (p *Peer) lookAround(ctx context.Context) error {
	for _, name := range p.cfg.Topics {
		switch topic, err := p.log.Topic(ctx, name); {
		case err == nil:
			p.before[topic.ID] = len(topic.Partitions)
		case !errors.Is(err, eventlog.ErrUnknownTopic):
			return fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
	}
	return nil
}

// withdraw leaves the group, also when ctx has ended. If that fails, the other peers evict this
// peer when its session ends.
func (p *Peer) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(p.log))
	defer cancel()
	if err := p.Leave(ctx); err != nil {
		p.logger.Warn("the member could not leave the group yet; its partitions are reassigned when its session times out at the latest", "err", err)
	}
	p.finish(errLeft)
}

// Run keeps the peer alive, and its assignment up to date, until ctx ends or Leave is called. Then
// it leaves the group and returns nil, so before that, finish and commit the records that you have
// begun to handle. It returns ErrFenced when the group has evicted the peer.
//
// It reads the group's state once every Look. Once every Heartbeat it writes a heartbeat, and reads
// the other peers' heartbeats and the state: by default fewer than two store calls a second.
func (p *Peer) Run(ctx context.Context) error {
	defer p.among.add(p.name, p.wake)()
	doubt := time.AfterFunc(p.cfg.Session, p.notify) // fires a session timeout after the last heartbeat: Assignment is empty then
	defer doubt.Stop()
	nextBeat := p.heartbeatSent().Add(p.cfg.Heartbeat)
	changed := p.log.IncarnationChanged()
	for next := time.Now(); ; next = earlier(time.Now().Add(jitter(p.cfg.Look)), nextBeat) {
		select {
		case <-p.over:
			return p.verdict()
		case <-ctx.Done():
			p.withdraw(ctx)
			return p.verdict()
		case <-p.wake:
		case <-changed: // after a rewind the peer may no longer be a member: a heartbeat finds out
			changed, nextBeat = p.log.IncarnationChanged(), time.Now()
		case <-time.After(time.Until(next)):
		}
		due := !time.Now().Before(nextBeat)
		if due {
			nextBeat = time.Now().Add(p.cfg.Heartbeat)
		}
		before := p.heartbeatSent()
		p.step(ctx, due)
		if alive := p.heartbeatSent(); alive != before {
			doubt.Reset(time.Until(alive.Add(p.cfg.Session)))
		}
	}
}

// step sends a heartbeat if one is due, and polls the group. Errors are logged at most once per
// heartbeat. The next step tries again; meanwhile the peer keeps its partitions. A heartbeat that
// waits, since commits are far apart or slow, is not given up for another one, which would wait as
// well. A poll is: it must leave time for the next heartbeat.
func (p *Peer) step(ctx context.Context, due bool) {
	var err error
	if due {
		err = p.heartbeat(ctx, p.cfg.Session)
	}
	if err == nil {
		polling, cancel := context.WithTimeout(ctx, p.cfg.Session/3)
		defer cancel()
		err = p.look(polling, due)
	}
	if err != nil && due && p.ended() == nil && !errors.Is(err, context.Canceled) {
		p.logger.Warn("the member could not send its heartbeat or read the group; trying again", "err", err)
	}
}

// look reads the group, writes a new assignment if one is needed, and reads the positions of new
// partitions. With checkMembers it also reads the others' heartbeats.
func (p *Peer) look(ctx context.Context, checkMembers bool) error {
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.giveTurn()
	if err := p.reconcile(ctx, checkMembers); err != nil {
		return err
	}
	if err := p.recall(ctx); err != nil {
		return err
	}
	return p.fill(ctx)
}

// ID is the peer's name in the group. It is unique for ever.
func (p *Peer) ID() string { return p.id }

// Generation returns the group's generation as this peer last read it. Each change of the group's
// members or assignment increments it.
func (p *Peer) Generation() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.group.generation
}

// Assignment returns what the peer may work on now. It is empty when no heartbeat has succeeded for
// a session timeout, since other peers may have taken over. If no peer has taken over when the
// store is back, the assignment is as before, with the positions committed last.
func (p *Peer) Assignment() Assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := Assignment{Generation: p.group.generation}
	if !p.trusted() {
		return a
	}
	me, _ := p.group.find(p.id)
	a.Own, a.Revoking = p.assigned(me.own), p.assigned(me.revoking)
	return a
}

// Revoking returns Assignment().Revoking, without the cost of listing the partitions that the peer
// keeps.
func (p *Peer) Revoking() []Assigned {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.trusted() {
		return nil
	}
	me, _ := p.group.find(p.id)
	return p.assigned(me.revoking)
}

// trusted reports whether the peer is a member, and had a heartbeat within its session. p.mu is
// held.
func (p *Peer) trusted() bool { return p.end == nil && time.Since(p.lastHeartbeat) < p.cfg.Session }

// assigned lists the partitions in tps whose position is known, by topic and partition.
func (p *Peer) assigned(tps []TopicPartition) []Assigned {
	if len(tps) == 0 {
		return nil
	}
	out := make([]Assigned, 0, len(tps))
	for _, tp := range tps {
		if a := p.held[tp]; a != nil {
			out = append(out, *a)
		}
	}
	slices.SortFunc(out, func(a, b Assigned) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), byPlace(a.TopicPartition, b.TopicPartition))
	})
	return out
}

// Changed returns a channel that receives a value after Assignment has changed. The channel holds
// one value, and is for one receiver.
func (p *Peer) Changed() <-chan struct{} { return p.changed }

// release is a call of Release.
type release struct{ tps []TopicPartition }

// Release gives partitions back immediately, for other peers. Partitions that are not this peer's
// are ignored. A peer may give back partitions that nobody waits for; it may get them again, with
// another Since.
//
// Calls that wait for the turn share one change of the group, since each change costs every peer
// time in proportion to the group's partitions.
func (p *Peer) Release(ctx context.Context, tps ...TopicPartition) error {
	mine := &release{tps}
	p.mu.Lock()
	p.releasing[mine] = true
	p.mu.Unlock()
	err := p.take(ctx)
	p.mu.Lock()
	waits := p.releasing[mine]
	delete(p.releasing, mine)
	all := slices.Clone(tps) // if another call gave them back already, this one finds nothing to do
	if err == nil {
		for other := range p.releasing {
			all = append(all, other.tps...)
		}
		clear(p.releasing)
	}
	p.mu.Unlock()
	if err != nil && !waits {
		return fmt.Errorf("%w: another call may have released the partitions (%w)", eventlog.ErrUnsure, err)
	}
	if err != nil {
		return err
	}
	defer p.giveTurn()
	if err := p.release(ctx, all); err != nil {
		return fmt.Errorf("release %d partitions of group %q: %w", len(tps), p.cfg.Group, err)
	}
	return nil
}

// Leave gives everything back and leaves the group. Run returns. To leave twice is harmless. If ctx
// ends while the store lets no commit begin, the error is eventlog.ErrUnsure, and the peer leaves
// later unless others change the group before.
func (p *Peer) Leave(ctx context.Context) error {
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.giveTurn()
	if p.ended() != nil {
		return nil
	}
	if err := p.leave(ctx); err != nil {
		return fmt.Errorf("leave group %q: %w", p.cfg.Group, err)
	}
	p.finish(errLeft)
	return nil
}

// finish ends the membership. The first reason counts.
func (p *Peer) finish(why error) {
	p.mu.Lock()
	first := p.end == nil
	if first {
		p.end = why
		clear(p.held)
	}
	p.mu.Unlock()
	if first {
		close(p.over)
		p.notify()
	}
}

// ended is nil while the peer is a member.
func (p *Peer) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// verdict is what Run returns when the membership is over.
func (p *Peer) verdict() error {
	if err := p.ended(); err != errLeft {
		return fmt.Errorf("peer %q of group %q: %w", p.id, p.cfg.Group, err)
	}
	return nil
}

func (p *Peer) heartbeatSent() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastHeartbeat
}

func (p *Peer) notify() { poke(p.changed) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s storedPeer) encode() []byte {
	value, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("cannot encode peer %+v as JSON: %v", s, err))
	}
	return value
}
