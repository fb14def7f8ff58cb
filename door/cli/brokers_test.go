package cli

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/seed"
)

// clusterMember is one of several brokers on a store, at addresses of its own.
type clusterMember struct {
	*process
	binary, store, kafka string
	rack                 string // empty: none
}

// up starts the broker, and waits until it is ready.
func (m *clusterMember) up(t *testing.T) {
	t.Helper()
	p := &process{out: &lockedBuffer{changed: make(chan struct{}, 1)}}
	args := []string{"serve", "--store", m.store, "--kafka", m.kafka, "--http", "127.0.0.1:0"}
	if m.rack != "" {
		args = append(args, "--rack", m.rack)
	}
	p.cmd = exec.Command(m.binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()
	})
	for {
		if at := readyLine.FindStringSubmatch(p.out.String()); at != nil {
			p.kafka = at[1]
			break
		}
		select {
		case <-p.out.changed:
		case <-time.After(30 * time.Second):
			t.Fatalf("weir is not ready: %s", p.out.String())
		}
	}
	m.process = p
}

// Three brokers share one PostgreSQL. Producers and a group of consumers work while, one after the
// other, brokers are killed, suspended for longer than their lease, or stopped and started again.
// Nothing acknowledged is lost, twice in the log, or out of order, and the group gets everything.
// WEIR_ROUNDS says how often; default 3.
func TestBrokersComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 3
	if given := os.Getenv("WEIR_ROUNDS"); given != "" {
		var err error
		if rounds, err = strconv.Atoi(given); err != nil {
			t.Fatal(err)
		}
	}
	random := seed.Random(t)
	program, store := build(t), pgtest.URL(t)
	var members []*clusterMember
	addresses, err := proctest.FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		m := &clusterMember{binary: program, store: store, kafka: address}
		m.up(t)
		members = append(members, m)
	}
	client := func(options ...kgo.Opt) *kgo.Client {
		// AlwaysRetryEOF: a kill may end a connection before its first answer, which franz-go
		// otherwise takes for a refusal. A stop and a suspension do not
		// (TestAStopResetsWhatWasNotAnswered, TestASuspendedBrokerDoesNotExecuteWhatWaited).
		c, err := kgo.NewClient(append([]kgo.Opt{kgo.AlwaysRetryEOF(), kgo.SeedBrokers(addresses...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second)}, options...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	admin := kadm.NewClient(client(kgo.RequestTimeoutOverhead(2 * time.Second))) // it may ask the broker that is suspended
	const partitions = 6
	if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	awaitBrokers(t, admin, 3)

	// Producers number the records of each partition; a record's place in the log must follow its
	// number.
	type place struct{ partition, number int }
	var mu sync.Mutex // guards acked, acks, longest and got
	acked := make(map[place]int64)
	var acks [partitions]int // by producer
	var longest time.Duration
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for p := range partitions {
		producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.DefaultProduceTopic("orders"))
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				r, err := producer.ProduceSync(t.Context(), &kgo.Record{Partition: int32(p), Value: fmt.Appendf(nil, "%d", n)}).First()
				if err != nil {
					t.Errorf("producer %d: %v", p, err)
					return
				}
				mu.Lock()
				acked[place{p, n}] = r.Offset
				acks[p]++
				longest = max(longest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	got := make(map[place]bool) // by the group
	consuming, stopConsuming := context.WithCancel(t.Context())
	for range 2 {
		consumer := client(kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.AutoCommitInterval(300*time.Millisecond))
		running.Go(func() {
			for consuming.Err() == nil {
				fetches := consumer.PollFetches(consuming)
				fetches.EachRecord(func(r *kgo.Record) {
					n, _ := strconv.Atoi(string(r.Value))
					mu.Lock()
					got[place{int(r.Partition), n}] = true
					mu.Unlock()
				})
			}
		})
	}
	var pauses []string
	for round := range rounds {
		m := members[random.IntN(len(members))]
		mu.Lock()
		before := len(acked)
		longest = 0
		mu.Unlock()
		fault := round % 3
		switch fault {
		case 0:
			m.signal(t, syscall.SIGKILL)
			_ = m.cmd.Wait()
			awaitBrokers(t, admin, 2)
			m.up(t)
		case 1:
			m.signal(t, syscall.SIGSTOP)
			awaitBrokers(t, admin, 2)
			m.signal(t, syscall.SIGCONT)
		case 2:
			m.signal(t, syscall.SIGTERM)
			if err := m.cmd.Wait(); err != nil && m.cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) && m.cmd.ProcessState.ExitCode() != 0 {
				t.Errorf("SIGTERM: %v\n%s", err, m.out.String())
			}
			m.up(t)
		}
		awaitBrokers(t, admin, 3)
		mu.Lock()
		soFar := acks
		mu.Unlock()
		waitUntil(t, "every producer goes on", func() bool { // what waits for a broker that was suspended belongs to this round
			mu.Lock()
			defer mu.Unlock()
			for p := range acks {
				if acks[p] == soFar[p] {
					return false
				}
			}
			return true
		})
		mu.Lock()
		pauses = append(pauses, fmt.Sprintf("%s %v", []string{"killed", "suspended", "stopped"}[fault], longest.Round(10*time.Millisecond)))
		if len(acked) == before {
			t.Errorf("round %d: nothing was acknowledged", round)
		}
		mu.Unlock()
	}
	t.Logf("longest wait for an acknowledgement, by round: %v", pauses)
	cancel()
	for late := time.After(time.Minute); ; {
		mu.Lock()
		missing := 0
		for at := range acked {
			if !got[at] {
				missing++
			}
		}
		mu.Unlock()
		if missing == 0 {
			break
		}
		select {
		case <-late:
			t.Fatalf("the group did not get %d of %d records", missing, len(acked))
		case <-time.After(100 * time.Millisecond):
		}
	}
	stopConsuming()
	running.Wait()
	checkLog(t, client(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), admin, func(partition, number int, offset int64) {
		if at, is := acked[place{partition, number}]; is && at != offset {
			t.Errorf("record %d of partition %d was acknowledged at offset %d, and is at %d", number, partition, at, offset)
		}
		delete(acked, place{partition, number})
	})
	if len(acked) > 0 {
		t.Errorf("%d acknowledged records are not in the log", len(acked))
	}
}

// A process that was killed and is started again at its address is the one broker there, before it
// answers its first client.
func TestAfterAKillThereIsOneBrokerAtTheAddress(t *testing.T) {
	t.Parallel()
	addresses, err := proctest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	m := &clusterMember{binary: build(t), store: pgtest.URL(t), kafka: addresses[0]}
	for range 3 {
		m.up(t)
		client, err := kgo.NewClient(kgo.SeedBrokers(m.kafka))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		if known, err := kadm.NewClient(client).ListBrokers(t.Context()); err != nil || len(known) != 1 || known[0].NodeID != 1 {
			t.Errorf("brokers are %v (%v), want broker 1 only", known, err)
		}
		m.signal(t, syscall.SIGKILL)
		_ = m.cmd.Wait()
	}
}

// A client asks a broker to delete a topic; the broker is suspended, so the client repeats that
// elsewhere, and the topic is created again. When the broker goes on, the new topic stays.
func TestASuspendedBrokerDoesNotExecuteWhatWaited(t *testing.T) {
	t.Parallel()
	m := &clusterMember{binary: build(t), store: pgtest.URL(t), kafka: "127.0.0.1:0"}
	m.up(t)
	other := &clusterMember{binary: m.binary, store: m.store, kafka: "127.0.0.1:0"}
	other.up(t)
	client := func(m *clusterMember) (*kgo.Client, *kadm.Client) {
		c, err := kgo.NewClient(kgo.SeedBrokers(m.process.kafka))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c, kadm.NewClient(c)
	}
	first, admin := client(m)
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := first.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, elsewhere := client(other)
	dial := func() net.Conn {
		nc, err := net.Dial("tcp", m.process.kafka)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		nc.SetDeadline(time.Now().Add(time.Minute)) // a test that hangs fails
		return nc
	}
	send := func(nc net.Conn, req kmsg.Request) {
		t.Helper()
		if _, err := nc.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(nc net.Conn) error {
		var length [4]byte
		if _, err := io.ReadFull(nc, length[:]); err != nil {
			return err
		}
		_, err := io.CopyN(io.Discard, nc, int64(binary.BigEndian.Uint32(length[:])))
		return err
	}
	old := dial()
	send(old, kmsg.NewPtrApiVersionsRequest())
	if err := answered(old); err != nil {
		t.Fatal(err)
	}
	m.signal(t, syscall.SIGSTOP)
	if _, err := syscall.Wait4(m.cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil { // until it is suspended
		t.Fatal(err)
	}
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.SetVersion(5)
	remove.TopicNames, remove.TimeoutMillis = []string{"orders"}, 5000
	send(old, remove)
	// The kernel accepts connections for a suspended process.
	rash, polite := dial(), dial()
	send(rash, remove)
	send(polite, kmsg.NewPtrApiVersionsRequest())
	for known := 0; known != 1; { // the other one has noticed
		brokers, err := elsewhere.ListBrokers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		known = len(brokers)
	}
	if _, err := elsewhere.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := elsewhere.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	m.signal(t, syscall.SIGCONT)
	awaitBrokers(t, elsewhere, 2)
	if answered(old) == nil || answered(rash) == nil {
		t.Error("a request that waited was answered")
	}
	if err := answered(polite); err != nil { // franz-go takes an end before the first answer for a refusal
		t.Errorf("a client that connected meanwhile: %v", err)
	}
	if topics, err := elsewhere.ListTopics(t.Context()); err != nil || !topics.Has("orders") {
		t.Errorf("topics after the broker goes on: %v, %v", topics.Names(), err)
	}
}

// A consumer reads from the broker in its rack, whoever leads the partition (KIP-392), and from the
// leader when no broker of its rack lives.
func TestConsumersReadInTheirRack(t *testing.T) {
	t.Parallel()
	url, program := pgtest.URL(t), build(t)
	var brokers []*clusterMember
	for _, rack := range []string{"east", "west"} {
		m := &clusterMember{binary: program, store: url, kafka: "127.0.0.1:0", rack: rack}
		m.up(t)
		brokers = append(brokers, m)
	}
	read := make(chan int32, 1000) // who answered the fetches that held records
	hook := fetchHook(func(broker int32) { read <- broker })
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers[0].process.kafka), kgo.Rack("west"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.WithHooks(hook), kgo.MetadataMinAge(100*time.Millisecond), kgo.AlwaysRetryEOF(),
		kgo.RecheckPreferredReplicaInterval(time.Second)) // franz-go stays with a broker that died until then; by default half an hour
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	awaitBrokers(t, admin, 2)
	const partitions = 8
	if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	var topics kadm.TopicDetails
	waitUntil(t, "every broker knows the topic", func() bool {
		topics, err = admin.ListTopics(t.Context(), "orders")
		return err == nil && topics.Error() == nil
	})
	led := make(map[int32]int)
	topics.EachPartition(func(p kadm.PartitionDetail) {
		led[p.Leader]++
		if !slices.Contains(p.Replicas, 2) {
			t.Errorf("partition %d, which broker %d leads, has the replicas %v", p.Partition, p.Leader, p.Replicas)
		}
	})
	if led[1] == 0 {
		t.Fatalf("all partitions have the same leader: %v", led)
	}
	round := func(want int32) {
		t.Helper()
		for p := range int32(partitions) {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for left := partitions; left > 0; {
			fetches := client.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("%d records were not read", left)
			}
			left -= fetches.NumRecords()
		}
		for len(read) > 0 {
			if broker := <-read; broker != want {
				t.Errorf("broker %d answered with records, want broker %d", broker, want)
			}
		}
	}
	round(2)
	round(2)
	brokers[1].signal(t, syscall.SIGKILL)
	_ = brokers[1].cmd.Wait()
	awaitBrokers(t, admin, 1)
	round(1)
}

// fetchHook is called for each batch of records that a broker sent.
type fetchHook func(broker int32)

func (h fetchHook) OnFetchBatchRead(meta kgo.BrokerMetadata, _ string, _ int32, _ kgo.FetchBatchMetrics) {
	h(meta.NodeID)
}

// checkLog reads all partitions to their ends, and checks that the numbers in each go up by one.
func checkLog(t *testing.T, reader *kgo.Client, admin *kadm.Client, each func(partition, number int, offset int64)) {
	t.Helper()
	ends, err := admin.ListEndOffsets(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	last := map[int32]int{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for left > 0 {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d records of the log were not read", left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			n, err := strconv.Atoi(string(r.Value))
			if want := last[r.Partition]; err != nil || n != want {
				t.Errorf("partition %d, offset %d: record %s, want %d", r.Partition, r.Offset, r.Value, want)
			}
			last[r.Partition] = n + 1
			each(int(r.Partition), n, r.Offset)
		})
	}
}

// awaitBrokers waits until every broker that answers knows so many.
func awaitBrokers(t *testing.T, admin *kadm.Client, want int) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		known, err := admin.ListBrokers(t.Context())
		if err == nil && len(known) == want {
			return
		}
		select {
		case <-late:
			t.Fatalf("%v brokers are known, want %d (%v)", known.NodeIDs(), want, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
