package sqlite

import (
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// A read takes several statements. All of them see one state of the file, whatever others commit in
// between: else what was just trimmed would look damaged, and batches could come without the bounds
// that go with them.
func TestAReadSeesOneState(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	commit(t, s, eventlog.Batch{Partition: 1, Records: 3, Bytes: []byte("here")})
	err := s.view(t.Context(), func(r *conn) error {
		before, err := r.partition(1)
		if err != nil {
			return err
		}
		commit(t, s, eventlog.Batch{Partition: 1, Records: 3, Bytes: []byte("here")})
		if err := storetest.Trim(t.Context(), s, 1, 3); err != nil {
			return err
		}
		after, err := r.partition(1)
		if err == nil && *after != *before {
			t.Errorf("a read that saw %+v sees %+v after another commit and a trim", *before, *after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
