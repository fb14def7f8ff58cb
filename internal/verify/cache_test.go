package verify_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/cache"
)

func TestAFileOfACacheThatIsNotAsTheStoreIsFound(t *testing.T) {
	r := newRig(t, "postgres")
	topic := published(r)
	dir := t.TempDir()
	below, err := store.Open(t.Context(), r.url, quiet)
	r.must(err)
	cached, err := store.Cached(below, r.url, cache.Options{Dir: dir, BlockBytes: 500, Logger: quiet})
	r.must(err)
	_, _, err = cached.Changes(t.Context(), eventlog.Mark{})
	r.must(err)
	for _, p := range topic.Partitions {
		_, err := cached.Read(t.Context(), []eventlog.Span{{Partition: p, MaxBytes: 1 << 20}}, 1<<20)
		r.must(err)
	}
	r.must(cached.Close())
	files, err := filepath.Glob(filepath.Join(dir, "*.weirblock"))
	r.must(err)
	if len(files) < 2 {
		t.Fatalf("the cache has the files %v", files)
	}
	check, err := store.VerifyCache(r.url, dir)
	r.must(err)
	found := func() (all []verify.Finding) {
		_, err := verify.Run(t.Context(), everystore.Open(t, r.url), verify.Options{Checks: []verify.Check{check}, Found: func(f verify.Finding) { all = append(all, f) }})
		r.must(err)
		return all
	}
	if all := found(); len(all) > 0 {
		t.Fatalf("found in a healthy cache: %v", all)
	}
	content, err := os.ReadFile(files[0])
	r.must(err)
	damaged := append([]byte(nil), content...)
	damaged[len(damaged)-1] ^= 64
	r.must(os.WriteFile(files[0], damaged, 0o600))
	if all := found(); len(all) != 1 || all[0].Check != "cache" || all[0].Topic != topic.Name {
		t.Errorf("a damaged file: found %v", all)
	}
	r.must(os.WriteFile(files[0], content, 0o600))
	// The store gets another batch without the key that tells caches.
	b := r.batches(topic.Partitions[1])[0]
	other := sealed(t, b.Partition, int(b.Records), int64(b.MaxTime)-2)
	other.Bytes[len(other.Bytes)-2] ^= 1
	stamp(other.Bytes)
	r.commit(eventlog.Entry{
		Replaces: []eventlog.Replace{{Partition: b.Partition, From: b.Base, To: b.End(), Batches: []eventlog.Batch{other}}},
	})
	if all := found(); len(all) != 1 || all[0].Check != "cache" || all[0].Place != at(topic, 0) {
		t.Errorf("another batch in the store: found %v", all)
	}
}
