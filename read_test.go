package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weir-log/weir"
)

func TestReadYieldsWhatWasThere(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		for _, v := range numbered("", 10) {
			publish(t, w, "orders", v)
		}
		var got []string
		for e, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders"}, weir.AtOffset(4)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Value))
			publish(t, w, "orders", "later")
		}
		if !slices.Equal(got, numbered("", 10)[4:]) {
			t.Errorf("from 4: %q", got)
		}
		for e, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders"}, weir.Earliest) {
			if err != nil || e.Offset > 2 {
				t.Fatal(e, err)
			}
			if e.Offset == 2 {
				break
			}
		}
	})
}

func TestReadOfWhatIsNotThereIsOneError(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	for _, c := range []struct {
		of   weir.TopicPartition
		from weir.Position
	}{{weir.TopicPartition{Topic: "missing"}, weir.Earliest}, {weir.TopicPartition{Topic: "orders", Partition: 1}, weir.Earliest}, {weir.TopicPartition{Topic: "orders"}, weir.AtOffset(1)}} {
		n := 0
		for _, err := range w.Read(t.Context(), c.of, c.from) {
			var invalid *weir.InvalidError
			if n++; !errors.Is(err, weir.ErrUnknownTopic) && !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if n != 1 {
			t.Errorf("%+v: %d errors", c, n)
		}
	}
}

// What is in a partition is read without a group, up to the end that it has now.
func ExampleLog_Read() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders", Partitions: 1}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("placed")}, weir.Event{Topic: "orders", Value: []byte("paid")}))

	for e, err := range w.Read(ctx, weir.TopicPartition{Topic: "orders", Partition: 0}, weir.AtOffset(1)) {
		fmt.Println(e.Offset, string(e.Value), err)
	}
	// Output:
	// 1 paid <nil>
}
