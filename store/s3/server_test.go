package s3

import (
	"testing"

	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/store/storetest"
)

// TestStoreOnARealServer is the contract on versitygw, with several processes.
func TestStoreOnARealServer(t *testing.T) {
	storetest.Run(t, storetest.Harness{Place: func(t *testing.T) string { return s3test.URL(t) }, Open: openURL})
}
