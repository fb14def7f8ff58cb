package stream_test

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// hooked calls functions once, before and after a List that a prefix begins.
type hooked struct {
	*memory.Store
	prefix string
	before atomic.Pointer[func()]
	after  atomic.Pointer[func()]
}

func (h *hooked) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, h.prefix) {
		if then := h.before.Swap(nil); then != nil {
			(*then)()
		}
	}
	kvs, err := h.Store.List(ctx, prefix, after, limit)
	if strings.HasPrefix(prefix, h.prefix) {
		if then := h.after.Swap(nil); then != nil {
			(*then)()
		}
	}
	return kvs, err
}
