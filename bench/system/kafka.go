package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/internal/proctest"
)

// linger is how long the client gathers records. It is the default of Kafka's own client
// (KIP-1030), and the same for every broker.
const linger = 5 * time.Millisecond

// kafkas are Apache Kafka, and weir by its Kafka protocol: the same client, another broker.
func kafkas() []System {
	client := "franz-go, acks=all, linger " + linger.String()
	all := []System{{
		Name: "kafka", About: "Apache Kafka " + mustPeer("kafka").Version + ", one broker", Needs: "Java 17", Program: "java", Fetch: "kafka", Ordered: true,
		Modes: map[Mode]Settings{
			Durable: {"flush": "log.flush.interval.messages=1", "copies": "1", "client": client},
			Shipped: {"flush": "none: the operating system writes when it likes (the default)", "copies": "1", "client": client},
		},
		Start: startKafka,
	}}
	for _, st := range weirStores() {
		settings := Settings{"flush": st.flush(), "settings": st.set(), "client": client}
		all = append(all, System{
			Name: "weir-" + st.name + "+kafka", About: "weir serve on " + st.about() + ", by the Kafka protocol", Needs: st.needs, Ordered: true,
			Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
			Start: func(ctx context.Context, place Place, _ Mode) (Server, error) { return startWeirServe(ctx, place, st) },
		})
	}
	return all
}

func mustPeer(name string) fetch.Peer {
	p, err := fetch.Find(name)
	if err != nil {
		panic(err) // the names are in this package
	}
	return p
}

// startKafka starts one node that is broker and controller, with Kafka's defaults but for the
// number of copies, which one node cannot have.
func startKafka(ctx context.Context, place Place, mode Mode) (Server, error) {
	libs, err := fetch.Dir("kafka")
	if err != nil {
		return nil, err
	}
	classes := filepath.Join(libs, "libs", "*")
	addresses, err := proctest.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	address, controller := addresses[0], addresses[1]
	config := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
log.dirs=%[3]s
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
`, address, controller, filepath.Join(place.Dir, "kafka"))
	if mode == Durable {
		config += "log.flush.interval.messages=1\n"
	}
	file := filepath.Join(place.Dir, "server.properties")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	id, err := exec.CommandContext(ctx, "java", "-cp", classes, "kafka.tools.StorageTool", "random-uuid").Output()
	if err != nil {
		return nil, fmt.Errorf("make a cluster id: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "java", "-cp", classes, "kafka.tools.StorageTool", "format", "-t", strings.TrimSpace(string(id)), "-c", file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format Kafka's storage: %w: %s", err, out)
	}
	p, err := StartProcess(ctx, place.Dir, address, "java", "-Xmx1g", "-cp", classes, "kafka.Kafka", file)
	if err != nil {
		return nil, err
	}
	return &broker{address: address, stop: p.Stop, faults: p.faults(), size: func(context.Context) (int64, error) { return dirSize(place.Dir) }}, nil
}

// startWeirServe starts the program weir on a fresh store.
func startWeirServe(ctx context.Context, place Place, st weirStore) (*broker, error) {
	program, err := weirProgram(ctx, place.Dir)
	if err != nil {
		return nil, err
	}
	url, db, err := st.open(place)
	if err != nil {
		return nil, fmt.Errorf("start %s for weir: %w", st.name, err)
	}
	closeStore := func() error {
		if db == nil {
			return nil
		}
		return db.Close()
	}
	addresses, err := proctest.FreeAddresses(2)
	if err != nil {
		return nil, errors.Join(err, closeStore())
	}
	kafka, http := addresses[0], addresses[1]
	p, err := StartProcess(ctx, place.Dir, kafka, program, "serve", "--store", url, "--kafka", kafka, "--http", http)
	if err != nil {
		return nil, errors.Join(err, closeStore())
	}
	faults := p.faults()
	faults.Hold = databaseFaults(db).Hold
	return &broker{address: kafka, http: http, url: url, bucket: db, stop: func() error { return errors.Join(p.Stop(), closeStore()) }, faults: faults,
		size: func(ctx context.Context) (int64, error) { return databaseSize(ctx, db, place.Dir) }}, nil
}

// weirProgram returns the program that $WEIR names, or one that is built from the sources beside
// the benchmark, or the one in PATH.
func weirProgram(ctx context.Context, dir string) (string, error) {
	if named := os.Getenv("WEIR"); named != "" {
		return filepath.Abs(named)
	}
	for _, root := range []string{".", "..", filepath.Join("..", "..")} {
		if _, err := os.Stat(filepath.Join(root, "cmd", "weir")); err != nil {
			continue
		}
		program := filepath.Join(dir, "weir")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "./cmd/weir")
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build weir: %w\n%s", err, out)
		}
		return program, nil
	}
	found, err := exec.LookPath("weir")
	if err != nil {
		return "", errors.New("there is no program weir: name it with WEIR=PATH, or run weir-bench in the repository")
	}
	return found, nil
}

// broker is what speaks Kafka's protocol.
type broker struct {
	address   string
	http, url string // of weir: its HTTP API, and its store
	stop      func() error
	faults    Faults
	size      func(context.Context) (int64, error)
	bucket    database // of weir: what its store is on, if anything

	mu       sync.Mutex // guards producer
	producer *kgo.Client
}

// Address is where clients of Kafka's protocol find it.
func (b *broker) Address() string { return b.address }

func (b *broker) Target() any    { return b }
func (b *broker) Faults() Faults { return b.faults }

// Requests are those to the bucket of weir's store.
func (b *broker) Requests() (Requests, bool, error) { return requests(b.bucket) }

func (b *broker) Size(ctx context.Context) (int64, error) { return b.size(ctx) }

func (b *broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.producer != nil {
		b.producer.Close()
	}
	return b.stop()
}

func (b *broker) Create(ctx context.Context, topic string, partitions int) error {
	admin, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		return err
	}
	defer admin.Close()
	for {
		made, err := kadm.NewClient(admin).CreateTopic(ctx, int32(partitions), 1, nil, topic)
		if err = errors.Join(err, made.Err); err == nil || ctx.Err() != nil {
			return err
		}
		var refused net.Error
		if !errors.As(err, &refused) && !kgo.IsRetryableBrokerErr(err) {
			return err
		}
		pause(ctx, 100*time.Millisecond) // it takes connections before it takes topics
	}
}

// client returns the one producer of all writers, as a service has one.
func (b *broker) client() (*kgo.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.producer != nil {
		return b.producer, nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(linger))
	b.producer = client
	return client, err
}

func (b *broker) Publish(ctx context.Context, topic string, events []Event) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	records := make([]*kgo.Record, len(events))
	for i, e := range events {
		records[i] = &kgo.Record{Topic: topic, Key: e.Key, Value: e.Value}
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("%w (%w)", ErrUnsure, err)
	}
	return nil
}

// Consume has a client for each member of a classic group. A member hands on all that it polled
// before it gives partitions away, and commits it then.
func (b *broker) Consume(ctx context.Context, topic, group string, members int, deliver func(value []byte)) error {
	var all errgroup.Group
	for i := range members {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ClientID(group+"-"+strconv.Itoa(i)), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(500*time.Millisecond))
		if err != nil {
			return err
		}
		all.Go(func() error {
			defer client.CloseAllowingRebalance()
			for {
				fetches := client.PollFetches(ctx)
				fetches.EachRecord(func(r *kgo.Record) { deliver(r.Value) })
				client.AllowRebalance()
				if ctx.Err() != nil {
					return nil
				}
				if err := fetches.Err(); err != nil {
					return err
				}
			}
		})
	}
	return all.Wait()
}
