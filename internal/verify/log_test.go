package verify_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/storetest"
)

func memoryStore() eventlog.Store { return memory.New() }

// published is a rig with a topic of two partitions, which have ten batches of three records each.
func published(r *rig) eventlog.Topic {
	r.t.Helper()
	topic := r.topic("orders", 2)
	for i := range 10 {
		for _, p := range topic.Partitions {
			_, err := r.Log.Append(r.t.Context(), eventlog.Entry{Batches: []eventlog.Batch{sealed(r.t, p, 3, 1_700_000_000_000+int64(i)*1000)}})
			r.must(err)
		}
	}
	r.clean()
	return topic
}

// at is the place of an offset in the second partition of the topic.
func at(topic eventlog.Topic, offset eventlog.Offset) verify.Place {
	return verify.Place{Topic: topic.Name, Number: 1, Partition: topic.Partitions[1], Offset: offset}
}

// What this weir does not know would be taken for damage.
func TestAStoreThatNeedsWhatThisWeirDoesNotKnowIsNotExamined(t *testing.T) {
	s := memory.New()
	if _, err := eventlog.Open(t.Context(), s.Again(), eventlog.Config{}); err != nil {
		t.Fatal(err)
	}
	storetest.Need(t, s.Again(), "x")
	if _, err := verify.Run(t.Context(), s, verify.Options{}); !errors.Is(err, eventlog.ErrUpgraded) {
		t.Errorf("%v, want ErrUpgraded", err)
	}
}

// A control batch, which says how a transaction ended, is as good as any.
func TestAControlBatchIsHealthy(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		mark := sealed(r.t, topic.Partitions[1], 1, 1_700_000_010_000)
		mark.Bytes[22] |= 1<<5 | 1<<4 // control, transactional
		stamp(mark.Bytes)
		r.commit(eventlog.Entry{Batches: []eventlog.Batch{mark}})
		r.clean()
		r.replace(r.batches(topic.Partitions[1])[10], func(b *eventlog.Batch) { b.Bytes[len(b.Bytes)-2] ^= 64 })
		r.finds("log", at(topic, 30))
	})
}

func TestAFlippedByteOfABatchIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		r.replace(r.batches(topic.Partitions[1])[4], func(b *eventlog.Batch) { b.Bytes[len(b.Bytes)-2] ^= 64 })
		r.finds("log", at(topic, 12))
	})
}

func TestAWrongCountOfRecordsIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		r.replace(r.batches(topic.Partitions[1])[4], func(b *eventlog.Batch) {
			binary.BigEndian.PutUint32(b.Bytes[57:], 2) // records, of which three are there
			stamp(b.Bytes)
		})
		r.finds("log", at(topic, 12))
	})
}

func TestAWrongCountOfOffsetsIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		r.replace(r.batches(topic.Partitions[1])[4], func(b *eventlog.Batch) {
			binary.BigEndian.PutUint32(b.Bytes[23:], 3) // the last offset delta
			stamp(b.Bytes)
		})
		r.finds("log", at(topic, 12))
	})
}

func TestAWrongTimeInTheIndexIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		r.replace(r.batches(topic.Partitions[1])[4], func(b *eventlog.Batch) { b.MaxTime -= 5000 })
		r.finds("log", at(topic, 12))
	})
}

func TestAMissingBatchIsFound(t *testing.T) {
	for _, nth := range []int{0, 4, 9} {
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			eachStore(t, func(r *rig) {
				topic := published(r)
				b := r.batches(topic.Partitions[1])[nth]
				r.deleteBatch(b)
				r.finds("log", at(topic, b.Base))
			})
		})
	}
}

func TestADoubledBatchIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		b := r.batches(topic.Partitions[1])[4]
		const columns = "first_byte, size, records, max_time, newest"
		p := b.Partition
		// The same batch begins once more, in its middle.
		r.statement(map[string]string{
			"sqlite": fmt.Sprintf("INSERT INTO batch (partition_id, base_offset, body_id, %s) SELECT partition_id, 13, body_id, %s FROM batch WHERE partition_id = %d AND base_offset = 12", columns, columns, p),
			"mysql": fmt.Sprintf(`INSERT INTO weir_batch (partition_id, base_offset, %s) SELECT partition_id, 13, %s FROM weir_batch WHERE partition_id = %d AND base_offset = 12;
				INSERT INTO weir_piece (partition_id, base_offset, nth, bytes) SELECT partition_id, 13, nth, bytes FROM weir_piece WHERE partition_id = %d AND base_offset = 12`, columns, columns, p, p),
			"postgres": fmt.Sprintf(`DO $$ DECLARE r record; BEGIN
				FOR r IN SELECT tableoid::regclass AS home FROM weir.batch WHERE partition_id = %d AND base_offset = 12 LOOP
					EXECUTE format('CREATE TEMP TABLE doubled AS SELECT * FROM %%s WHERE partition_id = %d AND base_offset = 12', r.home);
					UPDATE doubled SET base_offset = 13;
					EXECUTE format('INSERT INTO %%s SELECT * FROM doubled', r.home);
				END LOOP; END $$`, p, p),
		})
		r.finds("log", at(topic, 15))
	})
}

func TestAnIndexOfTimesThatMissesABatchIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		p := topic.Partitions[1]
		// All batches claim to follow a newer one: a search ends at the first.
		r.statement(map[string]string{
			"sqlite": fmt.Sprintf("UPDATE batch SET newest = 1 WHERE partition_id = %d", p),
			"mysql":  fmt.Sprintf("UPDATE weir_batch SET newest = 1 WHERE partition_id = %d", p),
		})
		r.finds("log", at(topic, 27))
	})
}

func TestATopicWithoutItsPartitionIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		r.commit(eventlog.Entry{Forgets: []eventlog.Partition{topic.Partitions[1]}})
		r.finds("topics", at(topic, -1))
	})
}

func TestAPartitionWithoutATopicIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		r.put(eventlog.Put{Key: "topic/orders"})
		found := r.examine()
		if len(found) != 2 || found[0].Check != "topics" || found[0].Partition != topic.Partitions[0] && found[0].Partition != topic.Partitions[1] {
			r.t.Errorf("found %v, want both partitions", found)
		}
	})
}

// produced publishes ten batches of an idempotent producer.
func produced(r *rig) (topic eventlog.Topic, key string) {
	r.t.Helper()
	topic = published(r)
	for i := range 10 {
		b := producedBy(sealed(r.t, topic.Partitions[1], 3, 1_700_000_100_000+int64(i)), 7, int32(3*i))
		_, err := r.Log.Append(r.t.Context(), eventlog.Entry{Batches: []eventlog.Batch{b}})
		r.must(err)
	}
	r.clean()
	return topic, r.keyUnder("producer/")
}

func TestAProducersSequenceBeyondTheLogIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		_, key := produced(r)
		r.put(eventlog.Put{Key: key, Value: []byte("0 27-29@57 30-32@60 60")})
		r.finds("producers", verify.AtKey(key))
	})
}

func TestAnOldStateOfAProducerIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic := published(r)
		var key string
		var old []byte
		for i := range 10 {
			b := producedBy(sealed(r.t, topic.Partitions[1], 3, 1_700_000_100_000+int64(i)), 7, int32(3*i))
			_, err := r.Log.Append(r.t.Context(), eventlog.Entry{Batches: []eventlog.Batch{b}})
			r.must(err)
			if i == 4 {
				key = r.keyUnder("producer/")
				old = r.get(key)
			}
		}
		r.clean()
		r.put(eventlog.Put{Key: key, Value: old})
		r.finds("producers", verify.AtKey(key))
	})
}

func TestAProducersStateThatNamesAnothersBatchIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		_, key := produced(r)
		r.put(eventlog.Put{Key: key, Value: []byte(strings.Replace(string(r.get(key)), "21-23@51", "21-23@48", 1))})
		r.finds("producers", verify.AtKey(key))
	})
}

func TestAMissingObjectOfABucketIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts an S3 server")
	}
	server := s3test.Start(t)
	r := &rig{t: t, kind: "s3", url: server.URL()}
	r.store = everystore.Open(t, r.url)
	r.start()
	published(r)
	r.stop()
	dir := server.Directory(r.url)
	var objects []string
	r.must(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.Contains(path, "/log/commit/") {
			objects = append(objects, path)
		}
		return err
	}))
	missing := objects[len(objects)/2]
	content, err := os.ReadFile(missing)
	r.must(err)
	key := "commit/" + filepath.Base(missing)
	for what, harm := range map[string]func() error{
		"missing": func() error { return os.Remove(missing) },
		"cut":     func() error { return os.WriteFile(missing, content[:len(content)-5], 0o600) },
	} {
		// The process that looks has read the commits before.
		opened := everystore.Open(t, r.url)
		r.must(harm())
		found := map[string]bool{}
		_, err = verify.Run(t.Context(), opened, verify.Options{Checks: []verify.Check{store.Verify()}, Found: func(f verify.Finding) {
			found[f.Check+" "+f.Key] = true
		}})
		t.Log(what, err, found)
		if !found["objects "+key] {
			t.Errorf("%s: %s is not among what was found: %v", what, key, found)
		}
		_ = os.Remove(missing)
		r.must(os.WriteFile(missing, content, 0o600))
	}
}
