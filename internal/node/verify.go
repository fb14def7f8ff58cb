package node

import (
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// Checks are those of the uses, for verify.Run.
func Checks() []verify.Check { return []verify.Check{group.Verify(), queue.Verify(), stream.Verify()} }
