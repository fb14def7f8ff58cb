// Package cost computes what a month of weir costs on each kind of store, and of Apache Kafka with
// three brokers in three zones, for one load.
//
// It is arithmetic, not a measurement: how many machines a load needs is the caller's to say, or
// follows from what a system was seen to use (Measured).
package cost

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// hours is how many hours a month has, as cloud providers count it.
const hours = 730

const month = hours * time.Hour

const gb = 1e9

// Prices are what the parts cost, in Currency.
type Prices struct {
	AsOf     string `json:"as_of"`    // when they were looked up
	What     string `json:"what"`     // whose they are
	Sources  string `json:"sources"`  // where they were found
	Currency string `json:"currency"` // such as USD

	Machine     string  `json:"machine"`      // the kind of machine that MachineHour pays for
	MachineHour float64 `json:"machine_hour"` // of one machine
	DiskGB      float64 `json:"disk_gb_month"`
	ObjectGB    float64 `json:"object_gb_month"` // of what a bucket holds
	Puts        float64 `json:"put_1000"`        // 1,000 PUTs or LISTs
	Gets        float64 `json:"get_1000"`        // 1,000 GETs; deletions are free
	ZoneGB      float64 `json:"zone_gb"`         // for a gigabyte from one zone to another, both sides together
}

//go:embed prices.json
var embedded []byte

// Default returns the prices that weir was built with.
func Default() Prices {
	p, err := ParsePrices(embedded)
	if err != nil {
		panic(err) // prices.json is wrong; a test reads it
	}
	return p
}

// SetMachine says what a machine costs a month, and what it is called.
func (p *Prices) SetMachine(what string, monthly float64) {
	p.Machine, p.MachineHour = what, monthly/hours
}

// ParsePrices reads a file like prices.json. Every field must be there, and no other.
func ParsePrices(text []byte) (Prices, error) {
	var p Prices
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return p, err
	}
	for _, name := range []string{"as_of", "what", "currency", "machine", "machine_hour", "disk_gb_month", "object_gb_month", "put_1000", "get_1000", "zone_gb"} {
		value, is := fields[name]
		if !is {
			return p, fmt.Errorf("%s is missing", name)
		}
		if price, is := value.(float64); is && price < 0 {
			return p, fmt.Errorf("%s is %v: a price is not negative", name, price)
		}
	}
	return p, nil
}

// Load is what is published and read, in the mean over a month.
type Load struct {
	Bytes     float64       // published each second, as stored: after compression
	Records   float64       // published each second
	Reads     float64       // how often each record is read
	Retention time.Duration // how long each is kept
}

// Check refuses a load that cannot be.
func (l Load) Check() error {
	switch {
	case l.Bytes < 0 || l.Records < 0 || l.Reads < 0 || l.Retention < 0:
		return errors.New("a load is not negative")
	case l.Bytes > 0 && l.Records == 0:
		return errors.New("bytes are published, but no records")
	}
	return nil
}

// Requests are requests to a bucket each second.
type Requests struct{ Puts, Gets, Lists float64 }

// Bucket is how weir uses a bucket, as the store's URL says (docs/s3.md).
type Bucket struct {
	Processes int           // that publish, each a part of the load
	Linger    time.Duration // above 0
	Alone     bool          // with one process: it does not look for what others write
	Kafka     bool          // it serves Kafka, and unless it is alone it tells others that it lives
	Members   int           // of groups, over HTTP or of the Go library, that stay
}

// What the S3 store does, by docs/s3.md, "What it costs".
const (
	snapshotEvery = 500      // commits from one snapshot to the next
	segment       = 32 << 20 // bytes of a segment at most
	gathered      = 8 << 20  // bytes of records of a commit that is gathered in segments, at most
	lists         = 6        // of a snapshot
	verifyEvery   = 10       // seconds
	upkeepEvery   = 15 * 60  // seconds: a quarter of the default grace
	upkeepLists   = 7
	upkeepGets    = 10
	listed        = 1000    // objects of a LIST at most
	heartbeat     = 0.2     // entries each second, with which a process that serves Kafka tells others that it lives
	memberBeat    = 1 / 3.0 // entries each second, with which a member of a group does (use/group, PeerConfig.Heartbeat)
	poll          = 1       // requests each second for other processes' commits
)

// Requests returns how many requests a load takes whose readers keep up: they read what the
// processes have in memory.
func (b Bucket) Requests(l Load) Requests {
	processes, heartbeats, polls := float64(b.Processes), float64(b.Members)*memberBeat, 0.0
	if !b.Alone {
		polls = processes * poll
		if b.Kafka {
			heartbeats += processes * heartbeat
		}
	}
	commits := min(l.Records+heartbeats, processes/b.Linger.Seconds()) // what comes within a linger shares a commit
	rounds := commits / snapshotEvery
	holding := min(l.Records, commits)
	gathers := l.Bytes <= holding*gathered
	objects := holding // that come each second, and stay
	if gathers {
		objects = max(holding/snapshotEvery, l.Bytes/segment)
	}
	listings := rounds + processes/upkeepEvery // of all objects, in pages
	r := Requests{
		Puts:  commits + rounds,
		Gets:  commits + polls + processes*upkeepGets/upkeepEvery, // after each commit: is the one before it still there?
		Lists: lists*rounds + processes*upkeepLists/upkeepEvery + listings*objects*l.Retention.Seconds()/listed,
	}
	if gathers {
		r.Puts += objects
		r.Gets += holding
	}
	switch {
	case b.Alone && b.Members > 0: // it never pauses
	case b.Alone || commits == 0:
		r.Gets += 2 * processes * pauses(commits/processes)
	default:
		r.Gets += processes / verifyEvery
	}
	return r
}

// pauses is how often, each second, a process has committed nothing for verifyEvery: once after
// that time, twice after twice that time, and so on. The process commits at random times; the
// parameter commits says how often it does each second, in the mean.
func pauses(commits float64) float64 {
	if commits == 0 {
		return 1.0 / verifyEvery
	}
	return commits / math.Expm1(verifyEvery*commits)
}

// Assumptions about disks: what lies on one takes onDisk times the bytes that were published, and a
// disk is filled to fullness.
const (
	onDisk   = 1.05 // measured 1.02 to 1.03 with batches of 1 MB (docs/cost.md)
	fullness = 0.7
	crossing = 2.0 / 3 // the share of clients' traffic that goes to another of three zones
)

// Item is one line of a bill.
type Item struct {
	What  string  `json:"what"`
	Count float64 `json:"count"`
	Unit  string  `json:"unit"`
	Cost  float64 `json:"cost"` // a month
}

// Bill is what a month costs.
type Bill struct {
	System string `json:"system"`
	Items  []Item `json:"items"`
}

// Total is the sum of all items.
func (b Bill) Total() float64 {
	sum := 0.0
	for _, i := range b.Items {
		sum += i.Cost
	}
	return sum
}

// parts are what a system uses in a month.
type parts struct {
	machines     int
	disk, bucket float64 // GB
	puts, gets   float64 // requests; puts are PUTs and LISTs
	zones        float64 // GB between zones
}

// bill lists the same items for every system, in the same order.
func (p Prices) bill(system string, n parts) Bill {
	machines := float64(n.machines)
	return Bill{system, []Item{
		{"machines", machines, "machines", machines * hours * p.MachineHour},
		{"disks", n.disk, "GB", n.disk * p.DiskGB},
		{"objects in the bucket", n.bucket, "GB", n.bucket * p.ObjectGB},
		{"PUT and LIST requests", n.puts, "requests", n.puts / 1000 * p.Puts},
		{"GET requests", n.gets, "requests", n.gets / 1000 * p.Gets},
		{"traffic between zones", n.zones, "GB", n.zones * p.ZoneGB},
	}}
}

func (l Load) kept() float64    { return l.Bytes * l.Retention.Seconds() / gb }
func (l Load) monthly() float64 { return l.Bytes * month.Seconds() / gb }

// clients is the traffic between clients in three zones and one process, or processes that a client
// does not choose by zone.
func (l Load) clients() float64 { return l.monthly() * (1 + l.Reads) * crossing }

// S3 is the bill of processes on machines of their own, with their log in a bucket, to which they
// make the requests r. Traffic to a bucket of the region is free.
func (p Prices) S3(l Load, machines int, r Requests) Bill {
	return p.bill("weir on S3", parts{
		machines: machines, bucket: l.kept(), zones: l.clients(),
		puts: (r.Puts + r.Lists) * month.Seconds(), gets: r.Gets * month.Seconds(),
	})
}

// PostgreSQL is the bill of one machine with weir and a database, and one with a standby in another
// zone.
func (p Prices) PostgreSQL(l Load) Bill {
	return p.bill("weir on PostgreSQL", parts{machines: 2, disk: 2 * l.kept() * onDisk / fullness, zones: l.clients() + l.monthly()*onDisk})
}

// SQLite is the bill of one machine. Its disk has the only copy.
func (p Prices) SQLite(l Load) Bill {
	return p.bill("weir on SQLite", parts{machines: 1, disk: l.kept() * onDisk / fullness, zones: l.clients()})
}

// Kafka is the bill of three brokers in three zones, with three copies of each record. Consumers
// read from the leader.
func (p Prices) Kafka(l Load) Bill {
	return p.bill("Kafka in three zones", parts{machines: 3, disk: 3 * l.kept() / fullness, zones: l.clients() + 2*l.monthly()})
}

// Used is what a system was seen to use.
type Used struct {
	System string
	CPU    time.Duration // of processors, for a record: its clients' too if they are in the same process
	Stored float64       // bytes on disk for a record; 0: the bytes that were published, times onDisk
	Cores  int           // of a machine
	Copies int           // of each record, on machines of their own; 0: one. A bucket has its own
	Bucket *Bucket       // it keeps its records in a bucket; nil: on disk
	Seen   *Seen         // how many requests it was seen to make; nil: as many as are computed
}

// Seen are the requests to a bucket that were counted under a load.
type Seen struct {
	Load     Load
	Requests Requests
	For      time.Duration // how long they were counted
}

// Short reports whether they were counted for too short a time to include what is done once for
// many commits, such as gathering them in segments.
func (s Seen) Short() bool { return s.Requests.Puts*s.For.Seconds() < 2*snapshotEvery }

// times is the ratio of the requests that were seen to those that are computed for the same load.
// If the time was too short to see all of them it is at least 1, so that all are billed.
func (s Seen) times(seen, computed float64) float64 {
	if s.Short() {
		return max(1, seen/computed)
	}
	return seen / computed
}

// requests are those that a load takes: the computed ones, times the ratio of seen to computed
// requests under the load that was measured. PUTs and LISTs have one price, so they count together.
func (u Used) requests(l Load) (puts, gets float64) {
	r := u.Bucket.Requests(l)
	puts, gets = r.Puts+r.Lists, r.Gets
	if u.Seen != nil {
		computed := u.Bucket.Requests(u.Seen.Load)
		puts *= u.Seen.times(u.Seen.Requests.Puts+u.Seen.Requests.Lists, computed.Puts+computed.Lists)
		gets *= u.Seen.times(u.Seen.Requests.Gets, computed.Gets)
	}
	return puts, gets
}

// busy is how busy a machine's processors may be in the mean.
const busy = 0.6

// Measured is the bill of a system that was measured, for another load: of as many machines as its
// processor time needs, but at least one for each copy. What a copy takes of processors was not
// measured; its bytes are on a disk, and were sent to another zone.
func (p Prices) Measured(l Load, u Used) Bill {
	copies := max(1, u.Copies)
	if u.Bucket != nil {
		copies = 1
	}
	n := parts{machines: max(copies, int(math.Ceil(l.Records*u.CPU.Seconds()/busy/float64(u.Cores)))), zones: l.clients() + float64(copies-1)*l.monthly()}
	if u.Bucket != nil {
		puts, gets := u.requests(l)
		n.bucket, n.puts, n.gets = l.kept(), puts*month.Seconds(), gets*month.Seconds()
		return p.bill(u.System, n)
	}
	kept := l.kept() * onDisk
	if u.Stored > 0 {
		kept = u.Stored * l.Records * l.Retention.Seconds() / gb
	}
	n.disk = float64(copies) * kept / fullness
	return p.bill(u.System, n)
}

// Million is what a million records of a load cost, if a month costs total.
func (l Load) Million(total float64) float64 { return total / (l.Records * month.Seconds() / 1e6) }
