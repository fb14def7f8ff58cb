package store_test

import (
	"testing"

	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store"
)

func TestEveryKindIsOpenedByItsURL(t *testing.T) {
	for _, kind := range everystore.Durable() {
		t.Run(kind, func(t *testing.T) {
			address := everystore.URL(t, kind)
			everystore.Open(t, address)
			if found, err := store.Examine(t.Context(), address); err != nil || len(found) == 0 {
				t.Errorf("weir doctor finds %v: %v", found, err)
			}
		})
	}
}
