package postgres

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// An append of an event, a publish and a change of a key take the short way; what creates a
// partition, begins an epoch or has many parts does not.
func TestWhichFlushesAreOneSmallEntry(t *testing.T) {
	batch := func(size int) eventlog.Batch {
		return eventlog.Batch{Partition: 1, Records: 1, Bytes: bytes.Repeat([]byte("x"), size)}
	}
	put := func(keys ...string) (puts []eventlog.Put) {
		for _, key := range keys {
			puts = append(puts, eventlog.Put{Key: key, Version: 1, Value: []byte("v")})
		}
		return puts
	}
	var many []string
	for i := range oneKeysMax + 1 {
		many = append(many, fmt.Sprint("key", i))
	}
	event := eventlog.Entry{
		Checks:  []eventlog.Check{{Key: "head", Version: 3, Holdable: true}},
		Puts:    put("head", "event"),
		Batches: []eventlog.Batch{batch(300)},
	}
	for name, c := range map[string]struct {
		flush []eventlog.Entry
		want  bool
	}{
		"an event of a stream":     {[]eventlog.Entry{event}, true},
		"a batch":                  {[]eventlog.Entry{{Batches: []eventlog.Batch{batch(pieceMax)}}}, true},
		"a key":                    {[]eventlog.Entry{{Puts: put("k")}}, true},
		"a check":                  {[]eventlog.Entry{{Checks: []eventlog.Check{{Key: "k"}}}}, true},
		"as many keys as it takes": {[]eventlog.Entry{{Puts: put(many[1:]...)}}, true},
		"too many keys":            {[]eventlog.Entry{{Puts: put(many...)}}, false},
		"two entries":              {[]eventlog.Entry{event, {Puts: put("k")}}, false},
		"two pieces":               {[]eventlog.Entry{{Batches: []eventlog.Batch{batch(pieceMax + 1)}}}, false},
		"two batches":              {[]eventlog.Entry{{Batches: []eventlog.Batch{batch(1), batch(1)}}}, false},
		"a new partition":          {[]eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}}}}, false},
		"an epoch":                 {[]eventlog.Entry{{Puts: put(eventlog.EpochKey)}}, false},
		"two holdable checks":      {[]eventlog.Entry{{Checks: []eventlog.Check{{Key: "a", Holdable: true}, {Key: "b", Holdable: true}}}}, false},
		"a key checked twice":      {[]eventlog.Entry{{Checks: []eventlog.Check{{Key: "a"}, {Key: "a", Version: 1}}}}, false},
		"a deleted partition":      {[]eventlog.Entry{{Forgets: []eventlog.Partition{1}}}, false},
	} {
		if f, _ := gather(c.flush); f.one() != c.want {
			t.Errorf("%s: one small entry: %v, want %v", name, f.one(), c.want)
		}
	}
}
