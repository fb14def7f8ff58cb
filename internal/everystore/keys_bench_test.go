package everystore_test

import (
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
)

// The commit of the append with the most tags that there may be: 1,000 different ones, ten events
// with each. Others wait meanwhile.
func BenchmarkCommitOfMostTags(b *testing.B) {
	const tags, each = 1000, 10
	for _, kind := range everystore.Durable() {
		b.Run(kind, func(b *testing.B) {
			store := everystore.Open(b, everystore.URL(b, kind))
			for n := 0; b.Loop(); n++ {
				var e eventlog.Entry
				for i := range tags {
					key := fmt.Sprintf("stream/tag/0123456789abcdef0123456789abcdef/customer-%06d", i)
					e.Checks = append(e.Checks, eventlog.Check{Key: key, Version: eventlog.Version(n)})
					e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: eventlog.Version(n + 1), Value: []byte("12")})
					for k := range each {
						event := fmt.Sprintf("stream/tagged/0123456789abcdef0123456789abcdef/customer-%06d/%012d", i, n*each+k)
						e.Puts = append(e.Puts, eventlog.Put{Key: event, Version: 1, Value: []byte("order-4711/000000000012")})
					}
				}
				if outcomes, err := store.Commit(b.Context(), []eventlog.Entry{e}); err != nil || outcomes[0].Err != nil {
					b.Fatal(outcomes, err)
				}
			}
		})
	}
}
