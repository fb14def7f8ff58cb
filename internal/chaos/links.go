package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// link is a server as one process reaches it. It can be cut off from that process alone.
type link struct {
	server string // host and port
	front  net.Listener

	mu    sync.Mutex // guards what follows
	down  bool
	conns map[net.Conn]bool
}

func newLink(server string) (*link, error) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{server: server, front: front, conns: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := front.Accept()
			if err != nil {
				return // closed
			}
			go l.pass(conn)
		}
	}()
	return l, nil
}

// pass connects to the server, and passes on what either side says until one of them is gone.
func (l *link) pass(conn net.Conn) {
	defer l.drop(conn)
	if !l.holds(conn) {
		return
	}
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer l.drop(server)
	if !l.holds(server) {
		return
	}
	go func() {
		_, _ = io.Copy(server, conn)
		l.drop(server)
	}()
	_, _ = io.Copy(conn, server)
}

func (l *link) holds(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		l.conns[conn] = true
	}
	return !l.down
}

func (l *link) drop(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
	conn.Close()
}

// cut ends all connections, and takes no other one until mend is called.
func (l *link) cut() (mend func()) {
	l.set(true)
	return func() { l.set(false) }
}

func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if down {
		for conn := range l.conns {
			conn.Close()
		}
	}
}

func (l *link) close() error {
	l.set(true)
	return l.front.Close()
}

// connect makes the URL by which a process knows the store. It reaches each server of a set of
// shards over a link of its own.
func (w *world) connect(p *process) error {
	p.url = w.url
	if len(w.engines) == 1 {
		return nil
	}
	var addresses []string
	for _, e := range w.engines {
		address := e.address()
		var l *link
		if _, is := e.(server); is {
			u, err := url.Parse(address)
			if err != nil {
				return err
			}
			if l, err = newLink(u.Host); err != nil {
				return err
			}
			w.atEnd(l.close)
			u.Host = l.front.Addr().String()
			address = u.String()
		}
		p.links = append(p.links, l)
		addresses = append(addresses, strings.ReplaceAll(address, ",", ",,"))
	}
	p.url = "shard:" + strings.Join(addresses, ",")
	return nil
}

// part cuts a process off from a shard, and from no other. Meanwhile another shard crashes: so
// an epoch begins, and the process knows less of the set than the others do.
func (w *world) part(ctx context.Context, random *rand.Rand, p *process, last time.Duration) error {
	var reached []int // shards over a link
	for i, l := range p.links {
		if l != nil {
			reached = append(reached, i)
		}
	}
	random.Shuffle(len(reached), func(i, j int) { reached[i], reached[j] = reached[j], reached[i] })
	defer w.cutOff(p, reached[0])()
	pause(ctx, time.Duration(random.IntN(300))*time.Millisecond)
	if err := w.crash(ctx, w.engines[reached[1]].(server), last); err != nil {
		return err
	}
	pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond) // the others begin an epoch
	return nil
}

// remade is the topic that remake makes anew.
const remade = "remade"

// unheardMax bounds a request to a process that is cut off.
const unheardMax = 3 * time.Second

// remake deletes a topic through a process that does not reach one of its shards, and makes it
// anew. Meanwhile somebody publishes to that shard through a broker that does not hear of it,
// since it does not reach shard 0.
func (w *world) remake(ctx context.Context, random *rand.Rand, p *process) error {
	by := w.adminOf(p)
	l := w.model.Living(remade)
	if l == nil {
		if l = w.createTopic(ctx, random, remade, by); l == nil {
			return nil // the run is over
		}
	}
	t, is := w.topicNow(ctx, remade)
	if !is {
		return nil // the run is over: only remake deletes the topic
	}
	first := random.IntN(2)
	if p == &w.brokers[first].process {
		first = 1 - first
	}
	behind, other := w.brokers[first], w.brokers[1-first]
	n, at := -1, 0 // a partition on a shard that p can be cut off from
	for i, partition := range t.Partitions {
		if shard := w.shardOf(partition); shard != 0 && p.links[shard] != nil {
			n, at = i, shard
		}
	}
	if n < 0 || behind.links[0] == nil {
		n = 0
		w.counts.add("topics remade, and nobody was cut off")
	} else {
		w.counts.add("topics remade, and two processes were cut off")
		w.away.Store(&behind.process)
		defer w.away.Store(nil)
		w.publishTo(ctx, behind, n, 4, clientPatience)
		defer w.cutOff(&behind.process, 0)()
		mend, remove := w.cutOff(p, at), by.remove
		by.remove = func(ctx context.Context, name string, partitions int) error {
			defer mend()
			return remove(ctx, name, partitions)
		}
		defer mend()
	}
	w.deleteTopic(ctx, random, l, by)
	if w.createTopic(ctx, random, remade, by) != nil {
		w.publishTo(ctx, behind, n, 2, unheardMax)
		w.publishTo(ctx, other, n, 1, clientPatience)
	}
	return nil
}

// cutOff cuts a process off from a shard.
func (w *world) cutOff(p *process, shard int) (mend func()) {
	w.history.Add(fmt.Sprintf("%s does not reach shard %d", p.name, shard), remade)
	up := p.links[shard].cut()
	return sync.OnceFunc(func() {
		w.history.Add(fmt.Sprintf("%s reaches shard %d", p.name, shard), remade)
		up()
	})
}

// publishTo publishes records to a partition of the topic through a broker.
func (w *world) publishTo(ctx context.Context, b *broker, partition, most int, patience time.Duration) {
	for range most {
		records := w.model.Invoke("remake by "+b.name, remade, 1, false)
		within, cancel := context.WithTimeout(ctx, patience)
		o, places := b.publishWithin(within, records[0], fmt.Sprintf("?partition=%d", partition))
		cancel()
		w.model.End(records, o, places)
		w.counts.add("records " + o.String() + " by remake")
	}
}
