package cost

import (
	"math"
	"strings"
	"testing"
	"time"
)

var round = Prices{MachineHour: 0.1, DiskGB: 0.1, ObjectGB: 0.02, Puts: 0.005, Gets: 0.0004, ZoneGB: 0.02}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9+1e-6*math.Abs(b) }

// One megabyte each second is 2,628 GB a month of 730 hours; kept for 1,000 s it is 1 GB.
func TestBillsOfARoundLoad(t *testing.T) {
	load := Load{Bytes: 1e6, Records: 1000, Reads: 2, Retention: 1000 * time.Second}
	clients := 2628 * 3 * 2.0 / 3 * 0.02 // of three transfers two thirds cross
	for _, c := range []struct {
		bill Bill
		want map[string]float64
	}{
		{round.Kafka(load), map[string]float64{"machines": 219, "disks": 3 / 0.7 * 0.1, "traffic between zones": clients + 2*2628*0.02}},
		{round.SQLite(load), map[string]float64{"machines": 73, "disks": 1.05 / 0.7 * 0.1, "traffic between zones": clients}},
		{round.PostgreSQL(load), map[string]float64{"machines": 146, "disks": 2 * 1.05 / 0.7 * 0.1, "traffic between zones": clients + 1.05*2628*0.02}},
		{round.S3(load, 2, Requests{Puts: 3, Lists: 1, Gets: 10}), map[string]float64{"machines": 146, "objects in the bucket": 0.02,
			"PUT and LIST requests": 4 * 2628 * 0.005, "GET requests": 10 * 2628 * 0.0004, "traffic between zones": clients}},
	} {
		total := 0.0
		for _, item := range c.bill.Items {
			if !near(item.Cost, c.want[item.What]) {
				t.Errorf("%s, %s: %v, want %v", c.bill.System, item.What, item.Cost, c.want[item.What])
			}
			total += c.want[item.What]
		}
		if !near(c.bill.Total(), total) {
			t.Errorf("%s: the total is %v, want %v", c.bill.System, c.bill.Total(), total)
		}
	}
}

// A thousand records a second of a millisecond each keep 1 / 0.6 processors busy.
func TestTheBillOfWhatWasMeasured(t *testing.T) {
	load := Load{Bytes: 1e6, Records: 1000, Reads: 2, Retention: 1000 * time.Second}
	clients := 2628 * 3 * 2.0 / 3 * 0.02
	for _, c := range []struct {
		used     Used
		machines float64
		disks    float64
		puts     float64
		copied   float64 // GB from one zone to another
	}{
		{Used{CPU: time.Millisecond, Cores: 2}, 1, 1.05 / 0.7 * 0.1, 0, 0},
		{Used{CPU: 2 * time.Millisecond, Cores: 2, Stored: 3000}, 2, 3 / 0.7 * 0.1, 0, 0},
		{Used{CPU: 2 * time.Millisecond, Cores: 2, Stored: 3000, Copies: 3}, 3, 9 / 0.7 * 0.1, 0, 2 * 2628},
		{Used{CPU: 10 * time.Millisecond, Cores: 2, Stored: 3000, Copies: 3}, 9, 9 / 0.7 * 0.1, 0, 2 * 2628},
		{Used{CPU: 10 * time.Millisecond, Cores: 2, Bucket: &Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}}, 9, 0, (4 + 4.0/500 + 1e6/(32<<20) + 24.0/500 + 7.0/900 + (4.0/500+1.0/900)*1e6/(32<<20)*1000/1000) * 2628 * 0.005, 0},
		// A bucket has its own copies. Under the load that was measured the requests are those that
		// were counted, under others as many times those that are computed.
		{Used{CPU: time.Millisecond, Cores: 2, Copies: 3, Bucket: &Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}, Seen: &Seen{load, Requests{Puts: 2, Gets: 1, Lists: 3}, time.Hour}}, 1, 0, 5 * 2628 * 0.005, 0},
	} {
		got := map[string]float64{}
		bill := round.Measured(load, c.used)
		for _, item := range bill.Items {
			got[item.What] = item.Cost
		}
		if !near(got["machines"], c.machines*73) || !near(got["disks"], c.disks) || !near(got["PUT and LIST requests"], c.puts) || !near(got["traffic between zones"], clients+c.copied*0.02) {
			t.Errorf("%+v: %v", c.used, got)
		}
	}
	slow, bucket := Load{Bytes: 100, Records: 0.5, Reads: 1}, Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}
	seen := bucket.Requests(load)
	seen.Gets *= 2
	bill := round.Measured(slow, Used{Cores: 2, Bucket: &bucket, Seen: &Seen{load, seen, time.Second}})
	if want := 2 * bucket.Requests(slow).Gets * month.Seconds(); !near(bill.Items[4].Count, want) || bill.Items[4].What != "GET requests" {
		t.Errorf("twice the GETs were counted, and %v are in the bill: %+v", want, bill.Items[4])
	}
	// In ten minutes a bucket had half of what is computed; in ten seconds the rest would still
	// come.
	seen = bucket.Requests(load)
	seen.Puts, seen.Gets, seen.Lists = seen.Puts/2, seen.Gets/2, seen.Lists/2
	for counted, times := range map[time.Duration]float64{10 * time.Second: 1, 10 * time.Minute: 0.5} {
		bill := round.Measured(slow, Used{Cores: 2, Bucket: &bucket, Seen: &Seen{load, seen, counted}})
		if want := times * bucket.Requests(slow).Gets * month.Seconds(); !near(bill.Items[4].Count, want) {
			t.Errorf("half was counted in %v, and %v are in the bill, not %v", counted, bill.Items[4].Count, want)
		}
	}
	if got := load.Million(2628); !near(got, 1) { // 2,628 million records are a month's
		t.Errorf("a million costs %v", got)
	}
}

func TestRequestsOfABucket(t *testing.T) {
	busy := Load{Bytes: 1e6, Records: 1000}
	const getsKept, listsKept = 10.0 / 900, 7.0 / 900 // upkeep, each second
	for _, c := range []struct {
		name string
		b    Bucket
		l    Load
		want Requests
	}{
		{"linger bounds the commits", Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}, busy, Requests{Puts: 4 + 4.0/500 + 1e6/(32<<20), Gets: 8 + getsKept, Lists: 24.0/500 + listsKept}},
		{"what is kept is listed, a thousand to a page", Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}, Load{Bytes: 32 << 20, Records: 1000, Retention: 2000 * time.Second},
			Requests{Puts: 4 + 4.0/500 + 1, Gets: 8 + getsKept, Lists: 24.0/500 + listsKept + 2*(4.0/500+1.0/900)}},
		{"each record of a slow load is a commit, and it looks where 10 s pass without one", Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}, Load{Bytes: 500, Records: 0.5}, Requests{Puts: 0.502, Gets: 1 + 1/math.Expm1(5) + getsKept, Lists: 0.006 + listsKept}},
		{"each of several processes commits, says in these commits that it lives, and asks for the others' commits", Bucket{Processes: 3, Linger: time.Second, Kafka: true}, busy, Requests{Puts: 3 + 3.0/500 + 1e6/(32<<20), Gets: 6 + 3 + 0.3 + 3*getsKept, Lists: 18.0/500 + 3*listsKept}},
		{"commits of a heavy load are too large to be gathered", Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}, Load{Bytes: 40 << 20, Records: 40_000}, Requests{Puts: 4 + 4.0/500, Gets: 4 + getsKept, Lists: 24.0/500 + listsKept}},
		{"an idle process says that it lives, in commits without records", Bucket{Processes: 1, Linger: 250 * time.Millisecond, Kafka: true}, Load{}, Requests{Puts: 0.2 + 0.2/500, Gets: 1.3 + getsKept, Lists: 1.2/500 + listsKept}},
		{"an idle process that is alone looks now and then", Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true}, Load{}, Requests{Gets: 0.2 + getsKept, Lists: listsKept}},
		{"who serves no Kafka does not say that it lives", Bucket{Processes: 1, Linger: time.Second}, Load{}, Requests{Gets: 1 + 0.2 + getsKept, Lists: listsKept}},
		{"a member of a group says that it lives, whether or not it is alone", Bucket{Processes: 1, Linger: 250 * time.Millisecond, Alone: true, Members: 3}, Load{},
			Requests{Puts: 1 + 1.0/500, Gets: 1 + getsKept, Lists: 6.0/500 + listsKept}},
	} {
		if got := c.b.Requests(c.l); !near(got.Puts, c.want.Puts) || !near(got.Gets, c.want.Gets) || !near(got.Lists, c.want.Lists) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestPricesAreWhole(t *testing.T) {
	if p := Default(); p.Machine == "" || p.AsOf == "" || p.MachineHour == 0 || p.Puts == 0 || p.ZoneGB == 0 {
		t.Errorf("the default prices lack something: %+v", p)
	}
	text := string(embedded)
	for _, c := range []struct{ name, text, want string }{
		{"not JSON", "machine_hour: 1", "invalid character"},
		{"an unknown field", strings.Replace(text, `"put_1000"`, `"puts_1000"`, 1), `unknown field "puts_1000"`},
		{"no price for GETs", strings.Replace(text, "\"get_1000\": 0.0004,\n", "", 1), "get_1000 is missing"},
		{"a negative price", strings.Replace(text, `"get_1000": 0.0004`, `"get_1000": -1`, 1), "get_1000 is -1"},
	} {
		if _, err := ParsePrices([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
