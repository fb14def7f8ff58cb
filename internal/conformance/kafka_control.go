package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/internal/proctest"
)

// control answers a JVM that runs a class of Kafka's tests: it starts and stops the clusters that
// the cases ask for, and notes what becomes of the cases. Each connection brings one question.
type control struct {
	ctx      context.Context
	class    string
	weir     string
	postgres string
	scratch  string
	listener net.Listener
	served   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	clusters map[int]*cluster
	last     int
	cases    []kafkaCase
}

// question is what the JVM asks. Which fields it has depends on Do.
type question struct {
	Do string

	Case, Result, Reason, Stack string // began, ended
	IsTest                      bool
	Milliseconds                int64

	Method    string            // can
	Arguments map[string]string // by the name of the parameter, as text

	Brokers    int // start
	Security   string
	Properties map[string]string
	Features   map[string]string // feature levels that are not Kafka's newest
	PerBroker  map[int]map[string]string

	Cluster, Broker int // shutdown, restart, stop
}

type answer struct {
	Error   string         `json:"error,omitempty"`
	Lacks   string         `json:"lacks,omitempty"` // the setting or the feature that weir does not have
	Cluster int            `json:"cluster"`
	Brokers []brokerAnswer `json:"brokers,omitempty"`
}

type brokerAnswer struct {
	ID      int    `json:"id"`
	Address string `json:"address"`
}

func listen(ctx context.Context, class, weir, postgres, scratch string) (*control, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &control{ctx: ctx, class: class, weir: weir, postgres: postgres, scratch: scratch, listener: listener, clusters: map[int]*cluster{}}
	c.served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			c.served.Go(func() { c.serve(conn) })
		}
	})
	return c, nil
}

func (c *control) port() int { return c.listener.Addr().(*net.TCPAddr).Port }

// close stops what still runs, and returns the cases.
func (c *control) close() ([]kafkaCase, error) {
	err := c.listener.Close()
	c.served.Wait()
	for _, cluster := range c.clusters {
		_ = cluster.kill() // the case that left it behind has been judged
	}
	return c.cases, err
}

// hashCode is the address of an argument that has no text of its own. It differs in each run.
var hashCode = regexp.MustCompile(`@[0-9a-f]{4,8}\b`)

func (c *control) serve(conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return // the JVM was killed
	}
	var q question
	a := answer{}
	if err = json.Unmarshal(line, &q); err == nil {
		q.Case = hashCode.ReplaceAllString(oneLine(q.Case), "")
		a, err = c.answer(q)
	}
	if err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(a) // if the JVM was killed nobody misses the answer
}

func (c *control) answer(q question) (answer, error) {
	switch q.Do {
	case "began":
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cases = append(c.cases, kafkaCase{Name: q.Case, Result: unfinished})
		return answer{}, nil
	case "ended":
		return answer{}, c.note(q)
	case "can":
		return answer{Lacks: c.lacking(q)}, nil
	case "start":
		return c.start(q)
	case "stop":
		cluster, err := c.take(q.Cluster)
		if err != nil {
			return answer{}, err
		}
		return answer{}, cluster.kill() // the store ends, too
	case "shutdown", "restart":
		c.mu.Lock()
		cluster := c.clusters[q.Cluster]
		c.mu.Unlock()
		if cluster == nil || q.Broker < 0 || q.Broker >= len(cluster.brokers) {
			return answer{}, fmt.Errorf("there is no broker %d in cluster %d", q.Broker, q.Cluster)
		}
		if q.Do == "restart" {
			b := cluster.brokers[q.Broker]
			return answer{}, errors.Join(b.start(c.ctx), knows(c.ctx, b.address, 1))
		}
		return answer{}, cluster.brokers[q.Broker].end()
	}
	return answer{}, fmt.Errorf("there is no action %q", q.Do)
}

func (c *control) take(number int) (*cluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cluster := c.clusters[number]
	if cluster == nil {
		return nil, fmt.Errorf("there is no cluster %d", number)
	}
	delete(c.clusters, number)
	return cluster, nil
}

// note writes down what became of a case, or that a class or a method failed as a whole.
func (c *control) note(q question) error {
	if q.Result == "aborted" && q.Reason == "twin" {
		q.Result = ""
	}
	k := kafkaCase{Name: q.Case, Took: time.Duration(q.Milliseconds) * time.Millisecond, Reason: oneLine(q.Reason)}
	switch q.Result {
	case "":
	case "successful":
		k.Result = passed
	case "failed":
		k.Result = failed
	case "aborted":
		k.Result = internals
		if strings.HasPrefix(k.Reason, next) {
			k.Result = notRun
		}
	case "skipped":
		k.Result = skips
		if strings.Contains(k.Reason, "@Disabled") {
			k.Result, k.Reason = disabled, ""
		}
	default:
		return fmt.Errorf("there is no result %q", q.Result)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.cases); n > 0 && c.cases[n-1].Result == unfinished && c.cases[n-1].Name == q.Case {
		c.cases = c.cases[:n-1]
	}
	if k.Result == "" {
		return nil
	}
	c.cases = append(c.cases, k)
	fmt.Printf("%s: %s: %s in %v %s\n", c.class, k.Name, k.Result, k.Took, k.Reason)
	if k.Result != failed {
		return nil
	}
	return os.WriteFile(c.file(k.Name, "stack"), []byte(q.Stack), 0o600)
}

const fileNameMax = 120 // bytes of the name of a case, in that of a file

// file names a file of a case under scratch.
func (c *control) file(name, what string) string {
	return filepath.Join(c.scratch, c.class+"."+strings.Map(plain, name[:min(len(name), fileNameMax)])+"."+what)
}

// plain replaces what is awkward in the name of a file.
func plain(r rune) rune {
	if strings.ContainsRune(" /[]()=,;:\"'", r) {
		return '_'
	}
	return r
}

const (
	saslPlaintext = "SASL_PLAINTEXT"
	kafkaAdmin    = "plain-admin" // the user as whom the cases log in; its password is this name with -secret after it
)

const reasonMax = 300 // bytes of a reason in the document

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > reasonMax {
		s = strings.ToValidUTF8(s[:reasonMax], "") + " …"
	}
	return s
}

// start starts processes of weir on a database of their own.
func (c *control) start(q question) (answer, error) {
	settings, lacks := translate(c.class, q)
	if lacks != "" {
		return answer{Lacks: lacks}, nil
	}
	c.mu.Lock()
	c.last++
	number := c.last
	c.mu.Unlock()
	cl := &cluster{}
	a := answer{Cluster: number}
	url, err := createDatabase(c.ctx, c.postgres, fmt.Sprintf("k_%s_%d", strings.ToLower(strings.Map(plain, strings.NewReplacer(".", "_", "$", "_").Replace(c.class))), number))
	if err != nil {
		return answer{}, err
	}
	for n := range q.Brokers {
		addresses, err := proctest.FreeAddresses(3)
		if err != nil {
			return answer{}, cl.fail(err)
		}
		forClients := addresses[0]
		if q.Security == saslPlaintext {
			forClients = addresses[2]
			settings[n] = append(settings[n], "--kafka", "sasl_plaintext://"+forClients, "--super-users", "User:"+kafkaAdmin)
		}
		log, err := os.Create(c.file(fmt.Sprintf("%d.broker-%d", number, n), "log"))
		if err != nil {
			return answer{}, cl.fail(err)
		}
		cl.closers = append(cl.closers, log.Close)
		if _, err := fmt.Fprintln(log, "case:", q.Case); err != nil {
			return answer{}, cl.fail(err)
		}
		cl.brokers = append(cl.brokers, &broker{weir: c.weir, dir: c.scratch, address: addresses[0], log: log, args: append([]string{
			"serve", "--store", url, "--kafka", addresses[0], "--http", addresses[1], "--broker-id", strconv.Itoa(n), "--any-replication-factor",
			"--audit", "off", // tests count topics, and Kafka has none like weir.audit
		}, settings[n]...)})
		cl.addresses = append(cl.addresses, addresses[0])
		a.Brokers = append(a.Brokers, brokerAnswer{ID: n, Address: forClients})
	}
	var starts errgroup.Group
	for n, b := range cl.brokers {
		starts.Go(func() error {
			if err := b.start(c.ctx); err != nil {
				return fmt.Errorf("broker %d: %w; see the logs of case %d in %s", n, err, number, c.scratch)
			}
			return nil
		})
	}
	if err := starts.Wait(); err != nil {
		return answer{}, cl.fail(err)
	}
	err = cl.acquainted(c.ctx)
	if q.Security == saslPlaintext && err == nil {
		err = cl.addUser(c.ctx, kafkaAdmin, kafkaAdmin+"-secret")
	}
	if err != nil {
		return answer{}, cl.fail(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clusters[number] = cl
	return a, nil
}

// acquainted waits until each broker tells clients of all.
func (c *cluster) acquainted(ctx context.Context) error {
	for _, address := range c.addresses {
		if err := knows(ctx, address, len(c.addresses)); err != nil {
			return err
		}
	}
	return nil
}

// knows waits until the broker at an address tells clients of at least this number of brokers.
func knows(ctx context.Context, address string, brokers int) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		meta, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client.SeedBrokers()[0])
		if err == nil && len(meta.Brokers) >= brokers {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the broker at %s did not tell of %d brokers within %v: %w", address, brokers, startMax, err)
		}
	}
}

// createDatabase makes an empty database on a server, and returns its URL. It ends with the server.
// A copy of a database would not do: weir takes it for a store that was restored, and begins a new
// leader epoch.
func createDatabase(ctx context.Context, server, name string) (_ string, err error) {
	name = name[max(0, len(name)-63):] // as long as PostgreSQL allows
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0 ENCODING 'UTF8'"); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	u.Path = "/" + name
	return u.String(), nil
}
