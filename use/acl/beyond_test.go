package acl_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

// blind lists nothing: who asks it has read before all others wrote.
type blind struct{ eventlog.Store }

func (blind) List(context.Context, string, string, int) ([]eventlog.KeyValue, error) { return nil, nil }

// Callers of Create that do not know of each other can exceed the limit. The rules that they made
// hold, and can be deleted.
func TestACLsBeyondTheLimitHold(t *testing.T) {
	store := memory.New()
	racing := aclsOf(blind{store})
	const callers, each = 5, 1000
	for caller := range callers {
		var rules []acl.Binding
		for i := range each {
			rules = append(rules, read(fmt.Sprintf("t%d-%d", caller, i)))
		}
		if err := errors.Join(racing.Create(t.Context(), rules)...); err != nil {
			t.Fatal(err)
		}
	}
	acls := aclsOf(store)
	if _, err := acls.Current(t.Context()); err != nil {
		t.Errorf("nobody is judged: %v", err)
	}
	if err := acls.Create(t.Context(), []acl.Binding{read("one more")})[0]; !errors.Is(err, acl.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	done := acls.Delete(t.Context(), []acl.Filter{everything})[0]
	if err := errors.Join(append(done.Errs, done.Err)...); err != nil || len(done.Rules) != callers*each {
		t.Errorf("%d of %d rules were deleted, %v", len(done.Rules), callers*each, err)
	}
}
