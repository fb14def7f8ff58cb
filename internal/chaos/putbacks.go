package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/internal/s3test"
)

// A history with put-backs: processes write one bucket, each over a line of its own that is slow
// and loses answers, and again and again a copy of the bucket, up to three seconds old, is put back
// under them. After some of them a process, or all of them, are killed. Then the lines are good
// again, and judge.JudgePutBacks says what must be there.
//
// Much of what other actors rely on is lost with a bucket that is put back, so they have finished
// by then.

const (
	putBackActor = "put-backs" // of -only

	copyOldest   = 3 * time.Second  // when it is put back
	settleMax    = 60 * time.Second // until every process writes, and shows what others wrote
	answerMax    = 3 * time.Second  // of a request while lines are slow
	nearSnapshot = 495              // commits since the last snapshot; weir writes one after 500
	fillPart     = 4                // commits until then take at most this part of the length

	topicRounds = 5  // how many rounds write one topic
	backsMost   = 6  // how many copies at most are put back in a round
	marksMax    = 30 // how many void commits at most are marked by hand in a row
	// clocksApart is how long others must have committed before they show that a commit of a
	// process that was killed is void: what processes know of the server's time differs by less.
	clocksApart = 5 * time.Second
)

type putBackRun struct {
	w      *world
	bucket *bucket
	random *rand.Rand
	lines  []*line // of w.processes()
	length time.Duration

	topic string // the present one, and the put-backs since it was made
	backs []judge.PutBack
}

// runPutBacks puts copies of the bucket back for some time, in rounds.
func (w *world) runPutBacks(ctx context.Context, length time.Duration) error {
	w.history.Add("from now on the bucket is put back")
	h := &putBackRun{w: w, bucket: w.engines[0].(*bucket), random: w.random("put-backs"), length: length}
	for _, p := range w.processes() {
		l, err := newLine(w.url, w.random("line of "+p.name))
		if err != nil {
			return err
		}
		defer l.proxy.Close()
		h.lines = append(h.lines, l)
		if err := restartOn(ctx, p, l.url()); err != nil {
			return err
		}
	}
	for round, end := 0, time.Now().Add(length); time.Now().Before(end) && len(w.model.Found()) == 0 && ctx.Err() == nil; round++ {
		if err := h.round(ctx, round); err != nil {
			return err
		}
	}
	if len(w.model.Found()) > 0 {
		return nil
	}
	for _, b := range w.brokers {
		if err := restartOn(ctx, &b.process, w.url); err != nil {
			return err
		}
	}
	for _, e := range w.embedded {
		e.stop()
	}
	return w.deleteAll(ctx)
}

// restartOn ends a process and starts it again with another address of the store.
func restartOn(ctx context.Context, p *process, address string) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.stop()
	p.url = address
	return p.start(ctx)
}

// round puts some copies back, and judges what is there then.
func (h *putBackRun) round(ctx context.Context, n int) error {
	if n%topicRounds == 0 {
		h.topic, h.backs = fmt.Sprintf("putback%d", n/topicRounds), nil
		if err := h.w.insist(ctx, "POST", "/v1/topics", map[string]any{"name": h.topic, "partitions": 1}); err != nil {
			return err
		}
	}
	if h.random.IntN(2) == 0 {
		h.fill(ctx)
	}
	acting, stop := context.WithCancel(ctx)
	defer stop()
	var writers sync.WaitGroup
	for i, p := range h.w.processes() {
		slow := []time.Duration{0, 0, 20, 100, 400}[h.random.IntN(5)]
		h.lines[i].harm(slow * time.Millisecond)
		random := h.w.random(fmt.Sprintf("writer %s %d", p.name, n))
		writers.Go(func() { h.write(acting, p, h.lines[i], random) })
	}
	killed, err := h.putSomeBack(ctx)
	stop()
	writers.Wait()
	if err != nil {
		return err
	}
	for _, l := range h.lines {
		l.harm(-1)
	}
	if killed == 0 {
		killed = 1
		h.kill(h.random.IntN(len(h.lines)), 1)
	}
	if err := h.startAgain(ctx); err != nil {
		return err
	}
	return h.judge(ctx)
}

// fill commits until a process is about to write a snapshot, so that copies are put back while
// snapshots are written, too. Otherwise that would hardly ever happen.
func (h *putBackRun) fill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.length/fillPart)
	defer cancel()
	for n := 0; ctx.Err() == nil; n++ {
		if n%20 == 0 && h.newest("commit")-h.newest("snapshot") >= nearSnapshot {
			return
		}
		_, _ = h.w.audit.Append(ctx, eventlog.Entry{Puts: []eventlog.Put{{Key: "chaos/fill", Version: eventlog.Version(h.w.now()), Value: []byte("x")}}}) // an error means that the bucket was just put back
	}
}

// newest returns the highest number of the objects of a kind.
func (h *putBackRun) newest(kind string) (number int) {
	objects, _ := os.ReadDir(filepath.Join(h.bucket.server.Directory(h.w.url), "log", kind)) // there may be none yet
	if len(objects) > 0 {
		_, _ = fmt.Sscanf(objects[len(objects)-1].Name(), "%d", &number)
	}
	return number
}

// pace draws for each process how long its writer pauses at most. If few records are written before
// a copy is put back, and many after it, later commits soon have the numbers of void ones.
func (h *putBackRun) pace(of ...time.Duration) {
	for _, l := range h.lines {
		l.pauses.Store(int64(of[h.random.IntN(len(of))]))
	}
}

// write publishes through a process, with pauses, in which it falls behind.
func (h *putBackRun) write(ctx context.Context, p *process, l *line, random *rand.Rand) {
	for ctx.Err() == nil {
		if h.publish(ctx, p) == nil {
			pause(ctx, 20*time.Millisecond) // it may have been killed
		}
		pause(ctx, time.Duration(random.Int64N(l.pauses.Load()+1)))
	}
}

// publish publishes one record through a process.
func (h *putBackRun) publish(ctx context.Context, p *process) *judge.Record {
	w := h.w
	records := w.model.Invoke("writer at "+p.name, h.topic, 1, false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerMax)
	defer cancel()
	o, places := judge.Unknown, []judge.Place(nil)
	if b := w.brokerOf(p); b != nil {
		o, places = b.publishWithin(ctx, records[0], "")
	} else {
		said := w.embeddedOf(p).ask(ctx, order{Do: "publish", Topic: h.topic, Values: valuesOf(records)})
		o, places = said.Outcome, said.Places
	}
	w.model.End(records, o, places)
	w.counts.add("records " + o.String() + " around put-backs")
	if o != judge.Done {
		return nil
	}
	return records[0]
}

// putSomeBack puts copies back, some in a row, which costs less time than a round for each. Then it
// kills processes, or not; it returns how many.
func (h *putBackRun) putSomeBack(ctx context.Context) (killed int, err error) {
	for left := h.random.IntN(backsMost); ; left-- {
		h.pace(30*time.Millisecond, 300*time.Millisecond, time.Second)
		pause(ctx, time.Duration(h.random.IntN(500))*time.Millisecond)
		underSnapshot, err := h.putBack(ctx)
		if err != nil {
			return 0, err
		}
		if left == 0 || underSnapshot || ctx.Err() != nil { // a process that starts now reads that snapshot
			return h.killSome(ctx), nil
		}
		pause(ctx, time.Duration(h.random.IntN(1500))*time.Millisecond)
	}
}

// putBack copies the bucket, and puts the copy back a while later, or as soon as somebody sends a
// snapshot, which arrives after it.
func (h *putBackRun) putBack(ctx context.Context) (underSnapshot bool, err error) {
	w := h.w
	back := judge.PutBack{Copied: w.now()}
	restore, err := h.bucket.server.Copy(w.url)
	if err != nil {
		return false, err
	}
	age := []time.Duration{300 * time.Millisecond, time.Second, copyOldest}[h.random.IntN(3)]
	came, arrive := make(chan struct{}, len(h.lines)), make(chan struct{})
	for _, l := range h.lines {
		l.hold(came, arrive)
	}
	select {
	case <-came:
		underSnapshot = true
		w.counts.add("put-backs under a snapshot")
	case <-time.After(200*time.Millisecond + time.Duration(h.random.Int64N(int64(age)))):
	}
	err = restore()
	back.Back = w.now()
	for _, l := range h.lines {
		l.hold(nil, nil)
	}
	close(arrive)
	h.pace(0, 20*time.Millisecond, 300*time.Millisecond, time.Second)
	if err != nil {
		return false, err
	}
	h.backs = append(h.backs, back)
	w.counts.add("put-backs")
	w.history.Add(fmt.Sprintf("a copy of %v is put back", back.Copied), h.topic)
	return underSnapshot, nil
}

// killSome kills processes, or not, after a copy was put back. It returns how many.
func (h *putBackRun) killSome(ctx context.Context) (killed int) {
	pause(ctx, time.Duration(h.random.IntN(500))*time.Millisecond)
	switch h.random.IntN(4) {
	case 0:
		return 0
	case 1:
		killed = len(h.lines)
		h.kill(0, killed)
	default:
		killed = 1
		h.kill(h.random.IntN(len(h.lines)), killed)
	}
	pause(ctx, time.Duration(h.random.IntN(1000))*time.Millisecond) // the others go on
	return killed
}

// kill kills n processes, beginning with the one that has the index from.
func (h *putBackRun) kill(from, n int) {
	for _, p := range h.w.processes()[from : from+n] {
		h.w.counts.add("kills around put-backs")
		h.w.history.Add(p.name+" is killed", h.topic)
		p.kill()
	}
}

// markName finds in a refusal the name of the object that says that a commit is void.
var markName = regexp.MustCompile("void/[0-9]+-[0-9a-f]+")

// gapText is how a process says that it does not start because of a commit beyond a gap.
const gapText = "there is a gap between commits"

// startAgain starts those that were killed. A process is refused while nothing shows that a commit
// of another one that was killed is void. If others live, their commits show it after a while. If
// none lives, start marks the commit as void by hand, as the refusal tells operators to do.
func (h *putBackRun) startAgain(ctx context.Context) error {
	var living []*process
	for _, p := range h.w.processes() {
		if !p.ended() {
			living = append(living, p)
		}
	}
	for _, p := range h.w.processes() {
		if !p.ended() {
			continue
		}
		if err := h.start(ctx, p, living); err != nil || len(h.w.model.Found()) > 0 {
			return err
		}
		living = append(living, p)
	}
	return nil
}

// start starts a process, beside those that live.
func (h *putBackRun) start(ctx context.Context, p *process, living []*process) error {
	w := h.w
	log := filepath.Join(h.bucket.server.Directory(w.url), "log")
	met := map[string]time.Time{} // by mark: when a gap was met first
	shown := map[string]bool{}    // living processes have committed for long since
	for marked := 0; ctx.Err() == nil; {
		before, err := filepath.Glob(filepath.Join(log, "void", "*"))
		if err != nil {
			return err
		}
		said, err := p.startMayEnd(ctx)
		if err == nil {
			return nil
		}
		if strings.Contains(said, "address already in use") { // somebody else has the port for a while
			w.counts.add("starts without a port")
			pause(ctx, time.Second)
			continue
		}
		mark := markName.FindString(said)
		about := []string{h.topic, p.name}
		switch {
		case !strings.Contains(said, gapText) || mark == "":
			w.model.Broken("B1", about, "after a copy of the bucket was put back %s does not start: %v", p.name, err)
			return nil
		case slices.Contains(before, filepath.Join(log, mark)):
			w.model.Broken("B1", about, "%s does not start, and says that %s is missing, which is there: %s", p.name, mark, said)
			return nil
		case shown[mark]:
			w.model.Broken("B1", about, "%s does not start, although others have committed for more than %v since it was refused: %s", p.name, clocksApart, said)
			return nil
		}
		w.counts.add("starts refused because of a gap")
		w.history.Add(fmt.Sprintf("%s does not start before %s is shown to be void", p.name, mark), h.topic)
		if len(living) == 0 {
			if marked++; marked > marksMax {
				return fmt.Errorf("%s does not start after %d void commits were marked by hand: %s", p.name, marked, said)
			}
			if err := h.mark(mark); err != nil {
				return err
			}
			continue
		}
		if met[mark].IsZero() {
			met[mark] = time.Now()
		}
		late := time.Since(met[mark]) > clocksApart
		for _, other := range living {
			if h.publish(ctx, other) != nil && late {
				shown[mark] = true
			}
		}
		pause(ctx, 300*time.Millisecond)
	}
	return ctx.Err()
}

// mark says by hand that a commit is void.
func (h *putBackRun) mark(name string) error {
	path := filepath.Join(h.bucket.server.Directory(h.w.url), "log", name)
	h.w.counts.add("void commits marked by hand")
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644))
}

// judge waits until every process has written, and shows what the others wrote, and compares what
// they show with what was acknowledged.
func (h *putBackRun) judge(ctx context.Context) error {
	w := h.w
	var last []string
	for _, p := range w.processes() {
		for late := time.Now().Add(settleMax); ; pause(ctx, 50*time.Millisecond) {
			if r := h.publish(ctx, p); r != nil {
				last = append(last, r.Value)
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Now().After(late) {
				w.model.Broken("D3", []string{h.topic, p.name}, "a copy of the bucket was put back, and %s takes no records within %v; it said: %s", p.name, settleMax, lastOf(w.logPath(p.name)))
				return nil
			}
		}
	}
	w.model.JudgePutBacks(h.topic, h.backs, nil) // two chains give their records the same places
	views := map[string][]string{}
	for _, p := range w.processes() {
		for late := time.Now().Add(settleMax); len(w.model.Found()) == 0; pause(ctx, 50*time.Millisecond) {
			view, err := h.read(ctx, p)
			views[p.name] = view
			if err == nil && !slices.ContainsFunc(last, func(v string) bool { return !slices.Contains(view, v) }) {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Now().After(late) {
				w.model.Broken("D3", []string{h.topic, p.name}, "a copy of the bucket was put back, and within %v %s does not show all of %q, which came since: %v", settleMax, p.name, last, err)
			}
		}
	}
	if len(w.model.Found()) == 0 {
		w.model.JudgePutBacks(h.topic, h.backs, views)
	}
	return nil
}

// read reads all of the topic through a process.
func (h *putBackRun) read(ctx context.Context, p *process) (values []string, err error) {
	if b := h.w.brokerOf(p); b != nil {
		return pagesOf(ctx, b, h.topic, 1)
	}
	said := h.w.embeddedOf(p).ask(ctx, order{Do: "read", Topic: h.topic})
	if said.Outcome != judge.Done {
		return nil, errors.New(said.Err)
	}
	for _, s := range said.Handled {
		values = append(values, s.Value)
	}
	return values, nil
}

// line is the bucket as one process reaches it.
type line struct {
	proxy  *s3test.Proxy
	pauses atomic.Int64 // the longest of who writes through the process

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	slow   time.Duration // the longest that a request takes on its way; below 0: nothing is done to it
	came   chan struct{} // is told of a snapshot that was sent; nil: none is held
	arrive chan struct{} // closed when it may arrive
}

func newLine(address string, random *rand.Rand) (*line, error) {
	proxy, err := s3test.LaunchProxy(address)
	if err != nil {
		return nil, err
	}
	l := &line{proxy: proxy, random: random, slow: -1}
	proxy.Faults(l.fault)
	return l, nil
}

// url is that of the bucket over the line, for a process that asks for what others wrote as seldom
// as by default, so that it falls behind.
func (l *line) url() string {
	u, _ := url.Parse(l.proxy.URL())
	options := u.Query()
	options.Del("poll")
	u.RawQuery = options.Encode()
	return u.String()
}

// harm makes the line slow, and lets it lose requests; below 0 it does neither.
func (l *line) harm(slow time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = slow
}

// hold keeps snapshots that are sent, and tells came of them, until arrive is closed.
func (l *line) hold(came, arrive chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.came, l.arrive = came, arrive
}

func (l *line) fault(r s3test.Request) (f s3test.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.came != nil && r.Method == http.MethodPut && strings.HasPrefix(r.Key, "log/snapshot/") {
		f.Hold = l.arrive
		select {
		case l.came <- struct{}{}:
		default:
		}
	}
	if l.slow < 0 {
		return f
	}
	upTo := func(most time.Duration) time.Duration { return time.Duration(l.random.Int64N(int64(most) + 1)) }
	f.Before, f.After = upTo(l.slow), upTo(l.slow)
	if r.Method != http.MethodPut || strings.HasPrefix(r.Key, "log/probe/") {
		return f
	}
	switch l.random.IntN(25) {
	case 0:
		f.Drop = true
	case 1:
		f.Lose = true
	case 2:
		f.Late, f.Before = true, upTo(time.Second)
	}
	return f
}

func (w *world) brokerOf(p *process) *broker {
	for _, b := range w.brokers {
		if p == &b.process {
			return b
		}
	}
	return nil
}

func (w *world) embeddedOf(p *process) *embedded {
	for _, e := range w.embedded {
		if p == &e.process {
			return e
		}
	}
	return nil
}
