package memory_test

import (
	"context"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/storetest"
)

func TestStore(t *testing.T) {
	places := map[string]*memory.Store{}
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string {
			places[t.Name()] = memory.New()
			return t.Name()
		},
		Open: func(_ context.Context, place string) (eventlog.Store, error) {
			return places[place], nil
		},
		Backup: func(_ *testing.T, place string) func() {
			restore := places[place].Backup()
			return func() { restore(false) }
		},
		OneProcess: true, // what it holds ends with the process
	})
}
