// Package broker lets the processes that serve Kafka clients on one store know each other, so that
// clients are spread over them.
//
// Each process keeps a key with its id and its addresses, and puts it again every heartbeatEvery,
// or less often if the store's commits cost money. Whether a process lives is judged by the age of
// its key, by the store's clock: a process with a wrong clock, or one that was suspended, is judged
// as any other. If that clock is set back, keys do not age, and each process judges by how long it
// has found a key unchanged.
//
// Several processes may be advertised at one address: a process that was killed and its successor,
// which finds the key of the first; or two that live, behind a load balancer. Clients must be told
// of one broker at an address, so an address belongs to the process that joined last. The others
// name that one to their clients, and coordinate no groups.
//
// Correctness does not depend on it. Every process can append to every partition and coordinate
// every group, and the store decides every conflict. A process whose view is wrong sends clients to
// a broker that is gone; these clients ask again.
package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	keyPrefix = "broker/"

	// heartbeatEvery is the time between two puts of a broker's key, readEvery the time between two
	// reads of all brokers' keys.
	heartbeatEvery = time.Second
	readEvery      = time.Second
	// leaseBeats: a broker counts as dead when its key is as old as so many of its heartbeats.
	leaseBeats = 4
	// idMax is the highest id that a broker draws by itself.
	idMax = 1000
)

// HandOver is how long a broker that has left goes on serving, so that the other brokers notice
// before it closes its connections.
const HandOver = readEvery + 500*time.Millisecond

// ErrIDInUse: another process on the store has the broker id.
var ErrIDInUse = errors.New("the broker id is in use")

// ErrAddressTaken: clients that are sent to the address of this process are meant for another one.
var ErrAddressTaken = errors.New("another process is advertised to Kafka clients at the address of this one, and started later")

// Broker is one process that serves Kafka clients.
type Broker struct {
	ID        int32             `json:"id"`
	Host      string            `json:"host"`      // its machine's name: loopback addresses are usable only from there
	Addresses map[string]string `json:"addresses"` // host:port by listener name
	Rack      string            `json:"rack,omitempty"`
	Life      string            `json:"life"`               // drawn anew by each process
	LeaseMS   int64             `json:"lease_ms,omitempty"` // the age of its key, in milliseconds, at which it counts as dead; 0: that of heartbeatEvery
	Joined    int64             `json:"joined,omitempty"`   // goes up with each process that joins: an address belongs to the broker at it with the highest
	Counters  *Counters         `json:"counters,omitempty"` // nil: it tells none, as older versions do

	version eventlog.Version
}

// Counters are what a process has done since it started, as it put its key last.
type Counters struct {
	Records float64  `json:"records"` // appended
	Bytes   float64  `json:"bytes"`   // appended
	Fetched float64  `json:"fetched"` // bytes read
	Flushes []Bucket `json:"flushes,omitempty"`

	Deliveries []Bucket `json:"deliveries,omitempty"` // how old records were when readers that waited got them
}

// Bucket counts what took at most UpTo seconds.
type Bucket struct {
	UpTo  float64 `json:"up_to"`
	Count float64 `json:"count"`
}

// idOr returns the id that this process was given; if it was given none, the parameter other.
func (c Config) idOr(other int32) int32 {
	if c.ID == nil {
		return other
	}
	return *c.ID
}

// lease is the age of a broker's key at which it counts as dead.
func (b Broker) lease() time.Duration {
	return cmp.Or(time.Duration(b.LeaseMS)*time.Millisecond, leaseBeats*heartbeatEvery)
}

// Config sets a Registry up.
type Config struct {
	ID        *int32            // from 0; nil: the lowest from 1 that is free
	Host      string            // the machine's name
	Addresses map[string]string // host:port by listener name, as clients are told to use
	Rack      string
	Counters  func() *Counters // what this process tells the others with each put of its key; nil: nothing
	Logger    *slog.Logger     // default: slog.Default()
}

// Registry is this process among the brokers on its store. All methods may be called concurrently.
type Registry struct {
	log    *eventlog.Log
	cfg    Config
	life   string
	beat   time.Duration               // the time between two puts of this broker's key
	joined int64                       // Broker.Joined; 0 before Join
	silent eventlog.Silence            // of the brokers' keys
	seen   map[string]eventlog.Version // by life: the version of a broker's key when this process first read it
	view   atomic.Pointer[View]
}

// New returns a registry that knows only this process, until Join.
func New(log *eventlog.Log, cfg Config) *Registry {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	r := &Registry{log: log, cfg: cfg, life: rand.Text(), beat: log.HeartbeatEvery(heartbeatEvery), seen: make(map[string]eventlog.Version)}
	r.view.Store(Alone(cfg.idOr(1)))
	return r
}

// Join makes this process a broker on the log's store; the log must run. It waits for the lease of
// a broker that had the same Config.ID at another address and died; if that broker lives, the error
// is ErrIDInUse. A broker at an address of this one is replaced at once: most likely it is this
// process before a crash.
func (r *Registry) Join(ctx context.Context) error {
	for began := time.Now(); ; {
		me, err := r.register(ctx)
		switch {
		case err == nil:
			return r.refresh(ctx, me)
		case !errors.Is(err, ErrIDInUse) || time.Since(began) > (leaseBeats+1)*r.beat:
			return fmt.Errorf("join the brokers of the store: %w", err)
		}
		select {
		case <-time.After(heartbeatEvery / 2):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// register puts a key for this process: under Config.ID; or under the id of a broker at an address
// of this one, because clients then see no change; or under the lowest free one.
func (r *Registry) register(ctx context.Context) (Broker, error) {
	for {
		known, err := r.list(ctx)
		if err != nil {
			return Broker{}, err
		}
		me := Broker{
			Host: r.cfg.Host, Addresses: r.cfg.Addresses, Rack: r.cfg.Rack, Life: r.life,
			LeaseMS: (leaseBeats * r.beat).Milliseconds(), Joined: cmp.Or(r.joined, joinedLast(known)+1),
		}
		if me.ID = r.cfg.idOr(me.idAmong(known)); r.cfg.ID == nil && me.ID > idMax {
			return Broker{}, fmt.Errorf("%w: %d brokers live on the store, which is the limit", ErrIDInUse, idMax)
		}
		before := known[me.ID]
		if before.alive && before.Life == r.life { // it was put, though the answer was lost
			r.joined = before.Joined
			return before.Broker, nil
		}
		if before.alive && before.Life != r.life && !me.replaces(before.Broker) {
			return Broker{}, fmt.Errorf("%w: %d belongs to a broker on %s at %v: give this one another --broker-id", ErrIDInUse, me.ID, before.Host, before.Addresses)
		}
		me.version = before.version.Next()
		err = r.put(ctx, me, before.version)
		if errors.Is(err, eventlog.ErrStale) || errors.Is(err, eventlog.ErrUnsure) {
			continue // another process was first, or an earlier try of this one: read the keys again
		}
		if err == nil {
			r.joined = me.Joined
		}
		return me, err
	}
}

// joinedLast returns the highest Joined of all brokers that are known.
func joinedLast(known map[int32]found) (last int64) {
	for _, b := range known {
		last = max(last, b.Joined)
	}
	return last
}

func (r *Registry) put(ctx context.Context, b Broker, before eventlog.Version) error {
	if r.cfg.Counters != nil {
		b.Counters = r.cfg.Counters()
	}
	value, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("encode broker %v: %v", b, err)) // strings and numbers
	}
	_, err = r.log.SubmitUpkeep(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: keyOf(b.ID), Version: before}},
		Puts:   []eventlog.Put{{Key: keyOf(b.ID), Version: b.version, Value: value}},
	}).Wait(ctx)
	return err
}

func keyOf(id int32) string { return keyPrefix + strconv.Itoa(int(id)) }

// found is a broker's key as the store has it.
type found struct {
	Broker
	alive bool
}

func (r *Registry) list(ctx context.Context) (map[int32]found, error) {
	all, asked := make(map[int32]found), time.Now()
	err := r.log.ListAll(ctx, keyPrefix, func(kv eventlog.KeyValue) error {
		var b Broker
		if err := json.Unmarshal(kv.Value, &b); err != nil {
			return fmt.Errorf("key %s holds %.100q: %w", kv.Key, kv.Value, err)
		}
		b.version = kv.Version
		all[b.ID] = found{b, r.silent.Of(kv, asked) < b.lease()}
		return nil
	})
	if err == nil {
		r.silent.Forget(asked)
	}
	return all, err
}

// idAmong returns the id that b takes: the one that it has, that of a broker which it replaces, or
// the lowest that is free.
func (b Broker) idAmong(known map[int32]found) int32 {
	for _, other := range known {
		if other.Life == b.Life {
			return other.ID
		}
	}
	id := int32(1)
	for known[id].alive {
		id++
	}
	last := int64(-1)
	for _, other := range known {
		if b.replaces(other.Broker) && other.ID <= idMax && other.Joined > last {
			id, last = other.ID, other.Joined
		}
	}
	return id
}

// Run keeps this broker's key young, and follows the others, until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	me := *r.View().self
	beat, read := time.NewTicker(r.beat), time.NewTicker(readEvery)
	defer beat.Stop()
	defer read.Stop()
	failed := false
	var unrenewed, unread error
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			me, unrenewed = r.renew(ctx, me)
		case <-read.C:
			unread = r.refresh(ctx, me)
		}
		err := errors.Join(unrenewed, unread)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failed:
			r.cfg.Logger.Warn("cannot renew this broker's key or read the others'; trying again", "err", err)
		case err == nil && failed:
			r.cfg.Logger.Info("this broker's key is renewed again, and the others' are read", "id", me.ID)
		}
		failed = err != nil
	}
}

// renew puts the broker's key again. If another process has taken its id, because this one was away
// for longer than its lease, it registers anew.
func (r *Registry) renew(ctx context.Context, me Broker) (Broker, error) {
	ctx, cancel := context.WithTimeout(ctx, me.lease())
	defer cancel()
	next := me
	next.version = me.version.Next()
	err := r.put(ctx, next, me.version)
	if err == nil {
		return next, nil
	}
	if !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrUnsure) {
		return me, err
	}
	again, err := r.register(ctx)
	if err != nil {
		return me, err
	}
	if again.ID != me.ID {
		r.cfg.Logger.Warn("another process took this broker's id while this one was away", "id", me.ID, "now", again.ID)
	}
	return again, r.refresh(ctx, again)
}

// refresh reads which brokers live, and replaces the view.
func (r *Registry) refresh(ctx context.Context, me Broker) error {
	known, err := r.list(ctx)
	if err != nil {
		return err
	}
	next := viewOf(me, known)
	next.beside = r.beside(me, known)
	before := r.view.Swap(next)
	if !slices.Equal(before.ids(), next.ids()) {
		r.cfg.Logger.Info("the brokers on the store have changed", "this", me.ID, "brokers", next.ids())
	}
	r.tell(before, next)
	return nil
}

// viewOf returns the view of a broker that found these keys.
func viewOf(me Broker, known map[int32]found) *View {
	v := &View{self: &me}
	for _, b := range known {
		if b.alive {
			v.alive = append(v.alive, b.Broker)
		}
		switch {
		case !b.alive:
		case b.Life == me.Life || me.sees(b.Broker):
			v.brokers = append(v.brokers, b.Broker)
		default:
			v.unnamed = append(v.unnamed, b.Broker)
		}
	}
	all := slices.Clone(v.brokers)
	v.brokers = slices.DeleteFunc(v.brokers, func(b Broker) bool {
		return slices.ContainsFunc(all, func(other Broker) bool { return other.sees(b) && other.replaces(b) })
	})
	if len(v.brokers) == 0 { // clients must find somebody
		v.brokers = []Broker{me}
	}
	slices.SortFunc(v.brokers, byID)
	slices.SortFunc(v.unnamed, byID)
	slices.SortFunc(v.alive, byID)
	return v
}

func byID(a, b Broker) int { return cmp.Compare(a.ID, b.ID) }

// beside returns the brokers at an address of this one that live for certain: they joined later, or
// their keys were put again since this process first read them. A process that was killed is not
// among them, although its key is still there.
func (r *Registry) beside(me Broker, known map[int32]found) (all []Broker) {
	seen := make(map[string]eventlog.Version, len(known))
	for _, b := range known {
		first, has := r.seen[b.Life]
		if !has {
			first = b.version
		}
		seen[b.Life] = first
		if b.alive && b.Life != me.Life && me.shares(b.Broker) && (b.replaces(me) || b.version > first) {
			all = append(all, b.Broker)
		}
	}
	r.seen = seen
	slices.SortFunc(all, byID)
	return all
}

// tell logs what keeps clients of several brokers from working, when it begins and when it ends.
func (r *Registry) tell(before, next *View) {
	switch {
	case len(next.beside) > 0 && !slices.EqualFunc(before.beside, next.beside, sameLife):
		r.cfg.Logger.Warn("another process that lives is advertised at the address of this broker, and Kafka clients that are sent to one reach the other. Only the process that started last serves consumer groups",
			"address", next.self.shared(next.beside[0]), "others", next.beside, "serves_groups", next.named(), "do", "give each process an --advertise address of its own, at which clients reach that process and no other")
	case len(next.beside) == 0 && len(before.beside) > 0:
		r.cfg.Logger.Info("no other process is advertised at the address of this broker any more", "this", next.self.ID)
	}
	if len(next.unnamed) > 0 && !slices.EqualFunc(before.unnamed, next.unnamed, sameLife) {
		r.cfg.Logger.Warn("other brokers live on the store, and Kafka clients of this one are not told of them: a consumer group with members at both rebalances again and again",
			"this", *next.self, "others", next.unnamed, "do", "give all the same names of listeners, and each an --advertise address that clients of all can reach; docs/kafka.md, Several brokers")
	}
}

func sameLife(a, b Broker) bool { return a.Life == b.Life }

// String shows where a broker is: 2 on host-b at plaintext=weir.example:9092.
func (b Broker) String() string { return fmt.Sprintf("%d on %s at %s", b.ID, b.Host, b.Where()) }

// Where returns the broker's addresses: plaintext=weir.example:9092.
func (b Broker) Where() string {
	var addresses []string
	for _, name := range slices.Sorted(maps.Keys(b.Addresses)) {
		addresses = append(addresses, name+"="+b.Addresses[name])
	}
	return strings.Join(addresses, ",")
}

// Healthy returns nil if Kafka clients find this process, or in words why they are sent to another
// one at its address.
func (r *Registry) Healthy() error {
	v := r.View()
	if v.named() || len(v.beside) == 0 {
		return nil
	}
	other := v.beside[0]
	return fmt.Errorf("%w: at %s, on %s. Give each an --advertise address of its own", ErrAddressTaken, v.self.shared(other), other.Host)
}

// sees reports whether clients of b's listeners can use the addresses of other: both have listeners
// of the same names, with usable addresses, and where those of other are on loopback, other runs on
// the same machine.
func (b Broker) sees(other Broker) bool {
	if len(b.Addresses) != len(other.Addresses) {
		return false
	}
	for name := range b.Addresses {
		address, has := other.Addresses[name]
		if !has || !usable(address) || isLoopback(address) && other.Host != b.Host {
			return false
		}
	}
	for _, address := range b.Addresses { // and others can use this one's
		if !usable(address) {
			return false
		}
	}
	return true
}

// shared returns an address at which clients may reach b or other; "" if there is none. A loopback
// address is another one on each machine.
func (b Broker) shared(other Broker) string {
	for _, name := range slices.Sorted(maps.Keys(b.Addresses)) {
		address := b.Addresses[name]
		if !usable(address) || isLoopback(address) && other.Host != b.Host {
			continue
		}
		for _, its := range other.Addresses {
			if strings.EqualFold(address, its) {
				return address
			}
		}
	}
	return ""
}

// shares reports whether clients that are sent to an address of b may reach other.
func (b Broker) shares(other Broker) bool { return b.shared(other) != "" }

// replaces reports whether an address of other belongs to b, because b joined later. Brokers of
// earlier versions of weir do not say when they joined, and replace no other.
func (b Broker) replaces(other Broker) bool {
	return b.Joined > 0 && b.shares(other) && cmp.Or(cmp.Compare(b.Joined, other.Joined), cmp.Compare(b.Life, other.Life)) > 0
}

// usable reports whether an address names a host: 0.0.0.0:9092 does not.
func usable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, parse := netip.ParseAddr(host)
	return err == nil && host != "" && (parse != nil || !ip.IsUnspecified())
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Keys is the prefix of the keys of brokers, and KeysMost how many there are at most.
const (
	Keys     = keyPrefix
	KeysMost = 2 * idMax
)

// AtOneAddress tells, from the keys of a store, which brokers are advertised at one address, each
// pair in words. Both keys are younger than their leases: the brokers live, or one of them ended a
// moment ago without deleting its key.
func AtOneAddress(keys []eventlog.KeyValue) (pairs []string) {
	var alive []Broker
	for _, kv := range keys {
		var b Broker
		if err := json.Unmarshal(kv.Value, &b); err == nil && kv.Age < b.lease() {
			alive = append(alive, b)
		}
	}
	for i, b := range alive {
		for _, other := range alive[i+1:] {
			if address := b.shared(other); address != "" && b.Life != other.Life {
				pairs = append(pairs, fmt.Sprintf("%d on %s and %d on %s at %s", b.ID, b.Host, other.ID, other.Host, address))
			}
		}
	}
	return pairs
}

// Leave deletes this broker's key. If other brokers live whose addresses clients of this one can
// use, it also removes this one from its own view, so that clients are sent to the others. If there
// are none, others is false. Run must have ended. ctx should have a bound: without a word
// the other brokers notice when this one's lease ends. If ctx ends while the store lets no commit
// begin, the key is deleted later, as long as the log runs.
func (r *Registry) Leave(ctx context.Context) (others bool) {
	me := *r.View().self
	known, err := r.list(ctx)
	if err == nil && known[me.ID].Life == r.life {
		_, err = r.log.Append(ctx, eventlog.Entry{
			Checks: []eventlog.Check{{Key: keyOf(me.ID), Version: known[me.ID].version}},
			Puts:   []eventlog.Put{{Key: keyOf(me.ID), Version: known[me.ID].version.Next()}},
			Stays:  true,
		})
	}
	if err != nil {
		r.cfg.Logger.Info("cannot tell the other brokers yet that this one stops; they notice when its lease ends at the latest", "lease", me.lease(), "err", err)
	}
	if err != nil {
		known = make(map[int32]found)
		for _, b := range r.View().brokers {
			known[b.ID] = found{b, true}
		}
	}
	maps.DeleteFunc(known, func(_ int32, b found) bool { return b.Life == r.life })
	next := viewOf(me, known)
	if next.named() {
		return false
	}
	r.view.Store(next)
	return true
}

// View returns the brokers as this process knows them: at most readEvery old while the store
// answers.
func (r *Registry) View() *View { return r.view.Load() }
