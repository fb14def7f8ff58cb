package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// Partitions and groups are spread over the brokers; when one goes, only what it had moves, and all
// brokers agree.
func TestWorkIsSpreadAndMovesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var all []*process
		for n := range 4 {
			all = append(all, start(t, store, on(fmt.Sprint("h", n), 9092)))
		}
		time.Sleep(noticed)
		const things = 4000
		before := make(map[int]int32)
		count := map[int32]int{}
		for n := range things {
			before[n] = all[0].View().Leader(eventlog.Partition(n))
			count[before[n]]++
			for _, p := range all {
				if p.View().Leader(eventlog.Partition(n)) != before[n] || p.View().Coordinator(fmt.Sprint(n)).ID != all[0].View().Coordinator(fmt.Sprint(n)).ID {
					t.Fatalf("brokers disagree on %d", n)
				}
			}
		}
		for id, n := range count {
			if n < things/4-150 || n > things/4+150 {
				t.Errorf("broker %d leads %d of %d", id, n, things)
			}
		}
		all[2].stop()
		time.Sleep(leaseEnds)
		for n := range things {
			switch now := all[0].View().Leader(eventlog.Partition(n)); {
			case now == 3:
				t.Fatalf("partition %d is led by a dead broker", n)
			case before[n] != 3 && now != before[n]:
				t.Fatalf("partition %d moved from %d to %d", n, before[n], now)
			}
		}
	})
}

// Readers of a rack are sent to the leader if it is in their rack, otherwise to one and the same
// broker of their rack, which the partition's replicas name.
func TestReadersFindABrokerInTheirRack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		racks := map[int32]string{1: "east", 2: "west", 3: "west", 4: ""}
		var last *process
		for id := range int32(len(racks)) {
			cfg := on("host", 9092+int(id))
			cfg.Rack = racks[id+1]
			last = start(t, store, cfg)
		}
		time.Sleep(noticed)
		v, spread := last.View(), make(map[int32]bool)
		for p := range eventlog.Partition(100) {
			leader, replicas := v.Leader(p), v.Replicas(p)
			if _, is := v.Nearest(p, ""); is {
				t.Fatal("a client without a rack is sent elsewhere")
			}
			if _, is := v.Nearest(p, "north"); is {
				t.Fatal("a broker in a rack without brokers")
			}
			for _, rack := range []string{"east", "west"} {
				near, is := v.Nearest(p, rack)
				if !is || racks[near] != rack || racks[leader] == rack && near != leader || !slices.Contains(replicas, near) {
					t.Fatalf("partition %d with leader %d and replicas %v: clients in %s read from broker %d", p, leader, replicas, rack, near)
				}
				spread[near] = true
			}
			if replicas[0] != leader || len(replicas) > 3 {
				t.Fatalf("partition %d with leader %d has the replicas %v", p, leader, replicas)
			}
		}
		if len(spread) != 3 {
			t.Errorf("readers use the brokers %v", spread)
		}
	})
}
