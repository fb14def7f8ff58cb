package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir"
)

const (
	mixedGroup, mixedTopic = "mixed", "mixed"

	mixedPartitions = 12
	mixedSession    = 6 * time.Second        // of each member
	mixedEvery      = 100 * time.Millisecond // a record in each partition
	mixedMax        = time.Minute            // the longest that a round may take to come to rest
	mixedSources    = "internal/conformance/mixed"
	mixedMember     = "member" // the argument that makes this program a member by the Go library
)

// mixed is one group whose members are Kafka's Java client, librdkafka, the Go library and HTTP
// clients, two of each, at two brokers on one PostgreSQL. Rounds of harm are done to it while
// records are published.
type mixed struct {
	cluster *cluster
	members []*mixedClient
	random  *rand.Rand
	reads   *reads
	scratch string
	next    int // names members
	dumps   int // of goroutines
}

// mixedClient is a member's program. It may be started again, as another member.
type mixedClient struct {
	kind    string
	command func(name string) *exec.Cmd
	name    string
	process *exec.Cmd
	exited  chan error
	log     *os.File
}

// runMixed does a number of rounds, and prints what became of them.
func runMixed(ctx context.Context, o options, scratch string) error {
	seed := rand.Uint64()
	if o.seed != 0 {
		seed = o.seed
	}
	fmt.Printf("mixed: seed %d\n", seed)
	named, err := regexp.Compile(o.run)
	if err != nil {
		return fmt.Errorf("--run %s: %w", o.run, err)
	}
	wanted := slices.DeleteFunc(slices.Clone(harms), func(h harm) bool { return !named.MatchString(h.name) })
	if len(wanted) == 0 {
		return fmt.Errorf("--run %s: no harm has such a name", o.run)
	}
	m := &mixed{random: rand.New(rand.NewPCG(seed, 0)), reads: newReads(mixedPartitions), scratch: scratch}
	defer m.end()
	if err := m.open(ctx); err != nil {
		return err
	}
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return m.publish(publishing) })
	work.Go(func() error {
		defer stop()
		return m.rounds(ctx, o.rounds, wanted)
	})
	if err := work.Wait(); err != nil {
		return errors.Join(err, m.describe())
	}
	return m.reads.verdict(os.Stdout)
}

// describe says who has which partition, and who has read last.
func (m *mixed) describe() error {
	for _, address := range m.cluster.addresses {
		ctx, cancel := context.WithTimeout(context.Background(), stopMax)
		out, err := exec.CommandContext(ctx, filepath.Join(m.scratch, "weir"), "group", "describe", mixedGroup, "--bootstrap", address).CombinedOutput()
		cancel()
		if err == nil {
			return fmt.Errorf("the group, as %s has it:\n%s\nthe last reads: %s", address, out, m.reads.lasts())
		}
	}
	return errors.New("no broker describes the group")
}

// open starts the brokers and the members.
func (m *mixed) open(ctx context.Context) error {
	programs, err := fetchMembers(ctx, m.scratch)
	if err != nil {
		return err
	}
	m.cluster = &cluster{settings: []string{
		"--group-consumer-session-timeout", mixedSession.String(), "--group-consumer-heartbeat-interval", "1s", "--partitions", fmt.Sprint(mixedPartitions), "--profile",
	}}
	if err := m.cluster.start(ctx, filepath.Join(m.scratch, "weir"), twoBrokers, m.scratch); err != nil {
		return err
	}
	if err := m.publishOnce(ctx); err != nil { // which makes the topic
		return err
	}
	bootstrap, servers, store := strings.Join(m.cluster.addresses, ","), strings.Join(m.cluster.http, ","), m.cluster.url
	for _, kind := range []string{"java", "librdkafka", "go", "http"} {
		for range 2 {
			m.members = append(m.members, &mixedClient{kind: kind, command: func(name string) *exec.Cmd {
				return programs(kind, map[string]string{"go": store, "http": servers}[kind], bootstrap, name)
			}})
		}
	}
	for _, c := range m.members {
		if err := m.start(c); err != nil {
			return err
		}
	}
	return nil
}

// fetchMembers makes the members' programs ready, and returns how one is started.
func fetchMembers(ctx context.Context, scratch string) (func(kind, at, bootstrap, name string) *exec.Cmd, error) {
	if err := command(ctx, "go", "build", "-o", filepath.Join(scratch, "weir"), "./cmd/weir"); err != nil {
		return nil, err
	}
	libs, classes, python := filepath.Join(scratch, "lib"), filepath.Join(scratch, "classes"), filepath.Join(scratch, "python")
	for _, c := range [][]string{
		{"mvn", "-q", "-B", "-f", filepath.Join(kafkaSources, "pom.xml"), "dependency:copy-dependencies", "-DincludeArtifactIds=kafka-clients,slf4j-api,slf4j-nop,lz4-java,snappy-java,zstd-jni", "-DincludeScope=runtime", "-DoutputDirectory=" + libs},
		{"javac", "-cp", filepath.Join(libs, "*"), "-d", classes, filepath.Join(mixedSources, "Member.java")},
		{"python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", python, "confluent-kafka==2.16.1"},
	} {
		if err := command(ctx, c[0], c[1:]...); err != nil {
			return nil, err
		}
	}
	return func(kind, at, bootstrap, name string) *exec.Cmd {
		var cmd *exec.Cmd
		switch kind {
		case "java":
			cmd, at = exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classes+":"+filepath.Join(libs, "*"), "Member"), bootstrap
		case "librdkafka":
			cmd, at = exec.Command("python3", filepath.Join(mixedSources, "librdkafka.py")), bootstrap
			cmd.Env = append(os.Environ(), "PYTHONPATH="+python)
		case "http":
			cmd = exec.Command("python3", filepath.Join(mixedSources, "overhttp.py"))
		case "go":
			cmd = exec.Command(os.Args[0], mixedMember)
		}
		cmd.Args = append(cmd.Args, at, mixedGroup, mixedTopic, name)
		return cmd
	}, nil
}

// runMember is a member by the Go library: it says what it reads, and commits it then. SIGTERM ends
// it.
func runMember(store, group, topic, name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log, err := weir.Open(ctx, store, weir.Options{})
	if err != nil {
		return err
	}
	consumer, err := log.Consume(ctx, weir.Subscription{
		Group: group, Topics: []string{topic}, Name: name, Session: mixedSession,
		BatchHandler: func(_ context.Context, events []weir.Event) error {
			var lines strings.Builder
			for _, e := range events {
				fmt.Fprintf(&lines, "read %d %d %s\n", e.Partition, e.Offset, e.Value)
			}
			_, err := io.WriteString(os.Stdout, lines.String())
			return err
		},
	})
	if err != nil {
		return errors.Join(err, log.Close(context.Background()))
	}
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.Background(), stopMax)
	defer cancel()
	return errors.Join(consumer.Close(closing), log.Close(closing))
}

// start starts a member's program, under a name of its own.
func (m *mixed) start(c *mixedClient) error {
	m.next++
	c.name = fmt.Sprintf("%s-%d", c.kind, m.next)
	c.process, c.exited = c.command(c.name), make(chan error, 1)
	log, err := os.Create(filepath.Join(m.scratch, c.name+".log"))
	if err != nil {
		return err
	}
	c.process.Stderr, c.log = log, log
	out, err := c.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.process.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	process, exited, name := c.process, c.exited, c.name
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			m.reads.line(name, lines.Text(), time.Now())
		}
		exited <- process.Wait()
	}()
	return nil
}

func (m *mixed) names() (names []string) {
	for _, c := range m.members {
		names = append(names, c.name)
	}
	return names
}

// signal sends a signal to a member that is there.
func (c *mixedClient) signal(s syscall.Signal) error {
	if err := c.process.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, c.name, err)
	}
	return nil
}

// gone waits until the program has ended, and all that it said is read.
func (c *mixedClient) gone() {
	<-c.exited
	_ = c.log.Close() // it is for people
	c.process = nil
}

// end ends all programs.
func (m *mixed) end() {
	for _, c := range m.members {
		if c.process != nil {
			_ = c.process.Process.Kill() // it may have ended
			c.gone()
		}
	}
	if m.cluster != nil {
		_ = m.cluster.kill() // there is nothing to keep
	}
}

// harm is what may happen in a round. do returns mend, which makes up for it and is called when the
// group has come to rest.
type harm struct {
	name string
	do   func(context.Context, *mixed) (mend func(context.Context) error, err error)
}

var harms = []harm{
	{"a member is killed", func(_ context.Context, m *mixed) (func(context.Context) error, error) {
		return m.endMember(syscall.SIGKILL)
	}},
	{"a member leaves", func(_ context.Context, m *mixed) (func(context.Context) error, error) {
		return m.endMember(syscall.SIGTERM)
	}},
	{"a member is frozen", func(_ context.Context, m *mixed) (func(context.Context) error, error) {
		c := m.oneOf()
		return func(ctx context.Context) error {
			return c.signal(syscall.SIGCONT)
		}, c.signal(syscall.SIGSTOP)
	}},
	{"a broker is killed", func(_ context.Context, m *mixed) (func(context.Context) error, error) {
		b := m.cluster.brokers[m.random.IntN(2)]
		b.kill()
		return b.start, nil
	}},
	{"a broker is stopped", func(_ context.Context, m *mixed) (func(context.Context) error, error) {
		b := m.cluster.brokers[m.random.IntN(2)]
		return b.start, b.end()
	}},
	{"the database is killed, and starts again", func(_ context.Context, m *mixed) (func(context.Context) error, error) {
		return func(context.Context) error { return nil }, errors.Join(m.cluster.database.Crash(), m.cluster.database.Recover())
	}},
	{"a broker and a member are killed", func(_ context.Context, m *mixed) (func(context.Context) error, error) {
		b := m.cluster.brokers[m.random.IntN(2)]
		b.kill()
		again, err := m.endMember(syscall.SIGKILL)
		return func(ctx context.Context) error { return errors.Join(b.start(ctx), again(ctx)) }, err
	}},
}

func (m *mixed) oneOf() *mixedClient { return m.members[m.random.IntN(len(m.members))] }

// endMember ends a member; another one takes its place later.
func (m *mixed) endMember(s syscall.Signal) (again func(context.Context) error, err error) {
	c := m.oneOf()
	if err := c.signal(s); err != nil {
		return nil, err
	}
	c.gone()
	return func(context.Context) error { return m.start(c) }, nil
}

// rounds waits until each member reads, then does harm again and again: it waits until other
// members read what the harmed member read, mends the harm, and waits until each member reads.
func (m *mixed) rounds(ctx context.Context, n int, harms []harm) error {
	if err := m.await(ctx, m.names()); err != nil {
		return fmt.Errorf("before the first round: %w", err)
	}
	for round := range n {
		h := harms[m.random.IntN(len(harms))]
		began := time.Now()
		m.reads.round(h.name)
		mend, err := h.do(ctx, m)
		if err != nil {
			return fmt.Errorf("round %d, %s: %w", round+1, h.name, err)
		}
		if err := m.await(ctx, nil); err != nil {
			return fmt.Errorf("round %d, %s: %w", round+1, h.name, err)
		}
		m.reads.handedOver()
		if err := mend(ctx); err != nil {
			return fmt.Errorf("round %d, after %s: %w", round+1, h.name, err)
		}
		if err := m.await(ctx, m.names()); err != nil {
			return fmt.Errorf("round %d, after %s: %w", round+1, h.name, err)
		}
		fmt.Printf("round %d: %s; the longest wait of a record was %v, %d came again; %v\n", round+1, h.name, m.reads.waited().Round(time.Millisecond), m.reads.cameAgain(), time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// await waits until all is read that was acknowledged by now, and something later, also by each of
// these members. After a third of the time it writes down what the brokers do.
func (m *mixed) await(ctx context.Context, members []string) error {
	now := time.Now()
	if err := m.reads.await(ctx, now, members, mixedMax/3); err == nil || ctx.Err() != nil {
		return err
	}
	if err := m.goroutines(ctx); err != nil {
		return err
	}
	return m.reads.await(ctx, now, members, mixedMax*2/3)
}

// goroutines writes the goroutines of the brokers to files.
func (m *mixed) goroutines(ctx context.Context) error {
	for i, address := range m.cluster.http {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/goroutine?debug=2", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // it is down
		}
		text, err := io.ReadAll(answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		m.dumps++
		if err := os.WriteFile(filepath.Join(m.scratch, fmt.Sprintf("goroutines-%d-of-broker-%d.txt", m.dumps, i)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// publish publishes a record in each partition, again and again, and waits at the end until all are
// read.
func (m *mixed) publish(ctx context.Context) error {
	tick := time.NewTicker(mixedEvery)
	defer tick.Stop()
	client, err := m.producer()
	if err != nil {
		return err
	}
	defer client.Close()
	var sent sync.WaitGroup
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			sent.Wait()
			return m.reads.await(context.WithoutCancel(ctx), time.Time{}, nil, mixedMax)
		case <-tick.C:
		}
		for p := range int32(mixedPartitions) {
			sent.Add(1)
			client.Produce(context.WithoutCancel(ctx), &kgo.Record{Partition: p, Value: fmt.Appendf(nil, "%d.%d", p, n)}, func(r *kgo.Record, err error) {
				defer sent.Done()
				if err == nil {
					m.reads.published(r.Partition, r.Offset, string(r.Value), time.Now())
				}
			})
		}
	}
}

func (m *mixed) producer() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(m.cluster.addresses...), kgo.DefaultProduceTopic(mixedTopic), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(mixedMax))
}

func (m *mixed) publishOnce(ctx context.Context) error {
	client, err := m.producer()
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := client.ProduceSync(ctx, &kgo.Record{Value: []byte("0.first")}).First()
	if err == nil {
		m.reads.published(r.Partition, r.Offset, string(r.Value), time.Now())
	}
	return err
}
