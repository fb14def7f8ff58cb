package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// way is one way to reach a broker: an address, and Kafka's client settings for it.
type way struct {
	name, address, settings string
}

// runTLS measures Kafka's perf tools with TLS: Apache Kafka, and weir on the first store, which is
// also measured without.
func runTLS(ctx context.Context, b *bench) error {
	cert, key, err := b.certificate()
	if err != nil {
		return err
	}
	settings, err := b.settings("ssl", "security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location="+cert)
	if err != nil {
		return err
	}
	plain, err := b.settings("plain")
	if err != nil {
		return err
	}
	secured := freePort()
	w, err := b.startBinary(ctx, b.weir, b.stores[0], "--kafka", "ssl://"+secured, "--tls-cert", cert, "--tls-key", key)
	if err != nil {
		return err
	}
	defer w.close()
	address, stop, err := b.apacheWithTLS(ctx, cert, key)
	if err != nil {
		return err
	}
	defer stop()
	return b.compare(ctx, way{"weir on " + b.stores[0] + ", plain", w.kafka, plain}, way{"weir on " + b.stores[0] + ", TLS", secured, settings}, way{"apache kafka, TLS", address, settings})
}

// runACL measures a user whom 1,000 rules are about beside a super user, whom none is.
func runACL(ctx context.Context, b *bench) error {
	secured := freePort()
	w, err := b.startBinary(ctx, b.weir, b.stores[0], "--kafka", "sasl_plaintext://"+secured, "--super-users", "User:admin")
	if err != nil {
		return err
	}
	defer w.close()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	var ways []way
	for _, user := range []string{"admin", "alice"} {
		if err := addUser(ctx, admin, user); err != nil {
			return err
		}
		settings, err := b.settings(user, "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256",
			fmt.Sprintf("sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=%q password=%q;", user, user+" secret"))
		if err != nil {
			return err
		}
		ways = append(ways, way{user, secured, settings})
	}
	ways[0].name, ways[1].name = "a super user", "a user with 1,000 rules"
	allow := kadm.NewACLs().Topics("*").Groups("*").Clusters().ResourcePatternType(kmsg.ACLResourcePatternTypeLiteral).Allow("User:alice").AllowHosts("*").Operations(kadm.OpAll)
	if _, err := admin.CreateACLs(ctx, allow); err != nil {
		return err
	}
	for i := range 997 {
		other := kadm.NewACLs().Topics(fmt.Sprintf("other-%d", i)).ResourcePatternType(kmsg.ACLResourcePatternTypeLiteral).Allow("User:alice").AllowHosts("*").Operations(kadm.OpRead)
		if done, err := admin.CreateACLs(ctx, other); err != nil || done[0].Err != nil {
			return fmt.Errorf("create rule %d: %w", i, cmp.Or(err, done[0].Err))
		}
	}
	return b.compare(ctx, ways...)
}

func addUser(ctx context.Context, admin *kadm.Client, name string) error {
	done, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: name, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: name + " secret"}})
	if err == nil {
		err = done.Error()
	}
	return err
}

// runLogins measures what 500 clients a second that connect, log in and leave do to a producer.
func runLogins(ctx context.Context, b *bench) error {
	const rate = 500
	secured := freePort()
	w, err := b.startBinary(ctx, b.weir, b.stores[0], "--kafka", "sasl_plaintext://"+secured)
	if err != nil {
		return err
	}
	defer w.close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(w.kafka), kgo.DefaultProduceTopic("probe"), kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := addUser(ctx, kadm.NewClient(producer), "alice"); err != nil {
		return err
	}
	mechanism := scram.Auth{User: "alice", Pass: "alice secret"}.AsSha256Mechanism()
	alone, err := probe(ctx, producer, b.load.length)
	if err != nil {
		return err
	}
	during, end := context.WithCancel(ctx)
	defer end()
	var done, failed atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		for during.Err() == nil {
			<-tick.C
			all.Go(func() {
				c, err := kgo.NewClient(kgo.SeedBrokers(secured), kgo.SASL(mechanism))
				if err == nil {
					err = c.Ping(ctx)
					c.Close()
				}
				if err != nil {
					failed.Add(1)
				}
				done.Add(1)
			})
		}
	})
	began := time.Now()
	beside, err := probe(ctx, producer, b.load.length)
	logins := float64(done.Load()) / time.Since(began).Seconds()
	end()
	all.Wait()
	fmt.Printf("| | logins/s | of these failed | produce p50 | p99 |\n| --- | --- | --- | --- | --- |\n| alone | 0 | | %s |\n| beside logins with SCRAM | %.0f | %d | %s |\n", alone, logins, failed.Load(), beside)
	return err
}

// probe sends 100 single records a second.
func probe(ctx context.Context, producer *kgo.Client, length time.Duration) (probed, error) {
	got, err := pace{callers: 1, rate: 100, warmUp: time.Second, length: length}.run(ctx, func(int, int, time.Time) error {
		return producer.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 1000)}).FirstErr()
	})
	return probed{got.took}, cmp.Or(err, got.err)
}

type probed struct{ *hdrhistogram.Histogram }

func (l probed) String() string {
	return fmt.Sprintf("%.1f ms | %.1f ms", float64(l.ValueAtQuantile(50))/1e3, float64(l.ValueAtQuantile(99))/1e3)
}

// runBrokers measures one broker, and two, on one PostgreSQL.
func runBrokers(ctx context.Context, b *bench) error {
	plain, err := b.settings("plain")
	if err != nil {
		return err
	}
	one, err := b.start(ctx, "postgres")
	if err != nil {
		return err
	}
	defer one.close()
	first, err := b.start(ctx, "postgres")
	if err != nil {
		return err
	}
	defer first.close()
	second := &broker{store: first.store, closeStore: func() {}, kafka: freePort(), http: freePort(), log: filepath.Join(b.dir, "second.log")}
	if err := second.run(ctx, b.weir); err != nil {
		return err
	}
	defer second.close()
	return b.compare(ctx, way{"one broker", one.kafka, plain}, way{"two brokers", first.kafka + "," + second.kafka, plain})
}

// compare measures all ways in turns, and prints medians with ratios to the first.
func (b *bench) compare(ctx context.Context, ways ...way) error {
	runs := make([][]throughput, len(ways))
	for run := range b.runs {
		for i, w := range ways {
			got, err := b.perfTools(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			runs[i] = append(runs[i], got)
			fmt.Fprintf(os.Stderr, "run %d of %d, %s: %+v\n", run+1, b.runs, w.name, got)
		}
	}
	fmt.Printf("Medians of %d runs. In brackets: the median ratio to the first line, by run.\n\n| | produce 1 KiB | produce 100 B | consume |\n| --- | --- | --- | --- |\n", b.runs)
	for i, w := range ways {
		m := middle(runs[i])
		ratio := func(of func(throughput) float64) float64 {
			var all []float64
			for run := range runs[i] {
				all = append(all, of(runs[i][run])/of(runs[0][run]))
			}
			return median(all)
		}
		fmt.Printf("| %s | %.0f MB/s (%.2f) | %.0f records/s (%.2f) | %.0f MB/s (%.2f) |\n", w.name,
			m.produce1024*1024/1e6, ratio(func(t throughput) float64 { return t.produce1024 }),
			m.produce100, ratio(func(t throughput) float64 { return t.produce100 }),
			m.consumeMB*1.048576, ratio(func(t throughput) float64 { return t.consumeMB }))
	}
	return nil
}

var (
	sentRate = regexp.MustCompile(`([\d.]+) records/sec`)
	n100     = envInt("N100", 1_000_000)
	n1024    = envInt("N1024", 250_000)
)

func envInt(name string, byDefault int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return byDefault
}

// perfTools runs Kafka's perf tools as kafka-perf run does, with client settings.
func (b *bench) perfTools(ctx context.Context, w way) (t throughput, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	topic := "perf-" + strings.ToLower(rand.Text()[:12])
	if _, err := b.perfTool(ctx, "TopicCommand", "--bootstrap-server", w.address, "--command-config", w.settings, "--create", "--topic", topic, "--partitions", "4", "--replication-factor", "1"); err != nil {
		return t, err
	}
	produce := func(n, size int) (float64, error) {
		out, err := b.perfTool(ctx, "ProducerPerformance", "--topic", topic, "--num-records", strconv.Itoa(n), "--record-size", strconv.Itoa(size), "--throughput", "-1",
			"--command-config", w.settings, "--producer-props", "bootstrap.servers="+w.address, "acks=all", "linger.ms=5", "batch.size=131072")
		all := sentRate.FindAllStringSubmatch(out, -1)
		if err != nil || len(all) == 0 {
			return 0, errors.Join(err, fmt.Errorf("the output has no rate: %s", out))
		}
		return strconv.ParseFloat(all[len(all)-1][1], 64) // the last line is about the whole run
	}
	if t.produce100, err = produce(n100, 100); err != nil {
		return t, err
	}
	if t.produce1024, err = produce(n1024, 1024); err != nil {
		return t, err
	}
	got, err := b.perfConsume(ctx, w, topic, n100+n1024)
	t.consume, t.consumeMB = got.consume, got.consumeMB
	return t, err
}

// perfTool runs one of Kafka's tools.
func (b *bench) perfTool(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, b.perf, append([]string{"tool"}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// perfConsume consumes so many records of a topic with Kafka's perf tool.
func (b *bench) perfConsume(ctx context.Context, w way, topic string, records int) (t throughput, err error) {
	out, err := b.perfTool(ctx, "ConsumerPerformance", "--bootstrap-server", w.address, "--topic", topic, "--command-config", w.settings, "--num-records", strconv.Itoa(records), "--timeout", "60000")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	columns := strings.Split(lines[len(lines)-1], ", ")
	if err != nil || len(columns) < 10 {
		return t, errors.Join(err, fmt.Errorf("the output has no rates: %s", out))
	}
	if t.consumeMB, err = strconv.ParseFloat(strings.TrimSpace(columns[8]), 64); err != nil { // fetch.MB.sec, without the time to join
		return t, err
	}
	t.consume, err = strconv.ParseFloat(strings.TrimSpace(columns[9]), 64)
	return t, err
}

// settings writes a file with Kafka's client settings.
func (b *bench) settings(name string, lines ...string) (path string, err error) {
	path = filepath.Join(b.dir, name+".properties")
	return path, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// certificate makes a certificate for 127.0.0.1 that signs itself.
func (b *bench) certificate() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return "", "", err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(b.dir, "bench.crt"), filepath.Join(b.dir, "bench.key")
	return cert, key, errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
}

// apacheWithTLS starts Apache Kafka with a TLS listener. kafka-perf has its jars, and starts it
// without one only.
func (b *bench) apacheWithTLS(ctx context.Context, cert, key string) (address string, stop func(), err error) {
	home := os.Getenv("KAFKA_PERF_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", nil, err
		}
		home = filepath.Join(user, ".cache", "kafka-perf")
	}
	jars, data, store := filepath.Join(home, "libs", "*"), filepath.Join(b.dir, "kafka"), filepath.Join(b.dir, "kafka.pem")
	keyText, err := os.ReadFile(key)
	if err != nil {
		return "", nil, err
	}
	certText, err := os.ReadFile(cert)
	if err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(store, append(keyText, certText...), 0o600); err != nil {
		return "", nil, err
	}
	address, controller := freePort(), freePort()
	properties, err := b.settings("server",
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@"+controller, "listeners=SSL://"+address+",CONTROLLER://"+controller, "advertised.listeners=SSL://"+address,
		"controller.listener.names=CONTROLLER", "listener.security.protocol.map=SSL:SSL,CONTROLLER:PLAINTEXT", "inter.broker.listener.name=SSL",
		"ssl.keystore.type=PEM", "ssl.keystore.location="+store, "ssl.truststore.type=PEM", "ssl.truststore.location="+cert, "log.dirs="+data, "num.partitions=4",
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1")
	if err != nil {
		return "", nil, err
	}
	if out, err := exec.CommandContext(ctx, "java", "-cp", jars, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties).CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("format Apache Kafka's storage: %w: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, "java", "-Xmx2g", "-cp", jars, "kafka.Kafka", properties)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		nc, err := net.Dial("tcp", address)
		if err == nil {
			return address, stop, nc.Close()
		}
		if time.Since(began) > time.Minute {
			stop()
			return "", nil, fmt.Errorf("start Apache Kafka: %w", err)
		}
	}
}
