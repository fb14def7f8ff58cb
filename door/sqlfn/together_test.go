package sqlfn_test

import (
	"sync"
	"testing"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// Several processes are the first on a new database.
func TestProcessesThatStartTogetherAllOpenTheDoor(t *testing.T) {
	address := pgtest.URL(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := postgres.Open(t.Context(), address, postgres.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := sqlfn.Attach(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
