package stream_test

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// hooked calls functions once, before and after a read of keys that a prefix begins.
type hooked struct {
	*memory.Store
	prefix string
	before atomic.Pointer[func()]
	after  atomic.Pointer[func()]
	reads  atomic.Int64 // of such keys
}

func (h *hooked) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	defer h.call(prefix)()
	return h.Store.List(ctx, prefix, after, limit)
}

func (h *hooked) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	defer h.call(keys[0])()
	return h.Store.Get(ctx, keys, maxBytes)
}

// call calls before if the key begins with the prefix, and returns what calls after.
func (h *hooked) call(key string) func() {
	if !strings.HasPrefix(key, h.prefix) {
		return func() {}
	}
	h.reads.Add(1)
	if then := h.before.Swap(nil); then != nil {
		(*then)()
	}
	return func() {
		if then := h.after.Swap(nil); then != nil {
			(*then)()
		}
	}
}
