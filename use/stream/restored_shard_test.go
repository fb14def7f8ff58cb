package stream_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/use/keys"
	"github.com/weir-log/weir/use/stream"
)

// A backup that shard 0 is restored to may lack a category. What other shards have of it stays:
// also the keys of subjects, without which its records cannot be read. It is there again when shard
// 0 is restored to a later backup.
func TestAShardKeepsACategoryThatAnotherRestoredShardLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := memory.New()
		set, err := shard.Open(t.Context(), []shard.Shard{{Name: "a", Store: home}, {Name: "b", Store: memory.New()}},
			shard.Options{Rules: keys.Rules(), Logger: slog.New(slog.DiscardHandler)})
		check(t, err)
		defer func() { check(t, set.Close()) }()
		p := begin(t, set)
		early := home.Backup()
		var c *stream.Category
		for onHome := true; onHome; {
			c, err = p.CreateCategory(t.Context(), stream.Spec{Name: fmt.Sprint("orders", len(p.log.Topics()))})
			check(t, err)
			at, err := set.ShardOf("stream/category/" + c.ID().String())
			check(t, err)
			onHome = at == 0
		}
		events := plain("a", "b")
		events[1].Subject = "somebody"
		_, err = c.Append(t.Context(), "s", 0, events...)
		check(t, err)
		late := home.Backup()
		early(false)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(5 * time.Minute) // fake time: streams are swept
		if _, err := p.Category(t.Context(), c.Name()); err == nil {
			t.Error("the restored shard has the category")
		}
		late(false)
		time.Sleep(5 * time.Minute)
		cancel()
		check(t, <-done)
		c, err = p.Category(t.Context(), c.Name())
		check(t, err)
		if got := read(t, c, "s", stream.Range{}); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the stream has %q", got)
		}
	})
}
