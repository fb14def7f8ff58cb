package httpapi_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
)

// BenchmarkMembersOfAWideTopic measures polls of ten members that share 2,000 partitions, one of
// which gets an event each time.
func BenchmarkMembersOfAWideTopic(b *testing.B) {
	const members, partitions = 10, 2000
	d := open(b, httpapi.Config{})
	d.topic("wide", partitions)
	var paths []string
	for range members {
		paths = append(paths, d.join("g", `{"topics":["wide"]}`).path)
	}
	for _, p := range paths { // until each has its share
		d.get(p + "/events?wait_ms=100")
	}
	commit := func(n int) {
		for _, p := range paths { // one of them owns it
			if d.asJSON("POST", p+"/commit", fmt.Sprintf(`{"offsets":[{"topic":"wide","partition":%d,"offset":1}]}`, n)).status == 204 {
				return
			}
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		d.do("POST", fmt.Sprintf("/v1/topics/wide/events?partition=%d", n%partitions), "v")
		var polls sync.WaitGroup
		for _, p := range paths {
			polls.Go(func() { d.get(p + "/events?wait_ms=0") })
		}
		polls.Wait()
		commit(n % partitions)
	}
}
