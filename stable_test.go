package weir_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/proctest"
)

// heldBack is set in a process that was built with proctest.HeldBack.
const heldBack = "WEIR_TEST_HELD_BACK"

// In a weir in which a transaction is open, which the library cannot begin, its readers end where
// it began.
func TestReadersInGoEndBeforeAnOpenTransaction(t *testing.T) {
	if os.Getenv(heldBack) == "" {
		run := exec.Command("go", "test", "-count=1", "-overlay", proctest.HeldBack(t), "-run", "^"+t.Name()+"$", ".")
		run.Env = append(os.Environ(), heldBack+"=1")
		if told, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, told)
		}
		return
	}
	ctx := t.Context()
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 5)...)

	var read []string
	for e, err := range w.Read(ctx, weir.TopicPartition{Topic: "orders"}, weir.Earliest) {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, string(e.Value))
	}
	if fmt.Sprint(read) != "[0 1 2]" {
		t.Errorf("read: %q", read)
	}
	if err := w.ResetGroup(ctx, "reset", "orders", weir.Latest); err != nil {
		t.Fatal(err)
	}
	g, err := w.Group(ctx, "reset")
	if err != nil || g.Offsets[0].Committed != 3 || g.Offsets[0].Lag != 2 {
		t.Errorf("reset to the latest: %+v, %v; want offset 3 and a lag of 2", g.Offsets, err)
	}
	var got seen
	consume(t, w, weir.Subscription{Group: "begins", Topics: []string{"orders"}, Start: weir.Latest, Handler: got.note})
	if first := got.wait(t, 1)[0]; first.Offset != 3 {
		t.Errorf("a group that begins at the latest begins at offset %d, want 3", first.Offset)
	}

	for _, settings := range []weir.QueueSettings{{}, {KeyOrder: true}} {
		name := fmt.Sprintf("ordered-%t", settings.KeyOrder)
		if err := w.EnsureQueue(ctx, weir.Queue{Name: name, Partitions: 1, Settings: settings}); err != nil {
			t.Fatal(err)
		}
		var messages []weir.NewMessage
		for _, v := range numbered("", 5) {
			messages = append(messages, weir.NewMessage{Key: []byte(v), Value: []byte(v)})
		}
		if _, err := w.Enqueue(ctx, name, messages...); err != nil {
			t.Fatal(err)
		}
		if s, err := w.QueueStats(ctx, name); err != nil || s.Ready != 3 {
			t.Errorf("%s: %+v, %v; want 3 that are ready", name, s, err)
		}
		page, err := w.BrowseQueue(ctx, name, weir.Browse{})
		if err != nil || len(page.Messages) != 3 {
			t.Errorf("%s: %d messages are listed, %v; want 3", name, len(page.Messages), err)
		}
		worked := make(chan string, 10)
		if _, err := w.Work(ctx, weir.WorkOptions{Queue: name, Handler: func(_ context.Context, j weir.Job) error {
			worked <- string(j.Value)
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			next(t, worked)
		}
		select {
		case v := <-worked:
			t.Errorf("%s: message %s is claimed, and may yet be aborted", name, v)
		case <-time.After(time.Second):
		}
		if _, err := w.Enqueue(ctx, name, weir.NewMessage{Value: []byte("5")}); err != nil { // ends what holds them back
			t.Fatal(err)
		}
		for range 3 {
			next(t, worked)
		}
	}
}
