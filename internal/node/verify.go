package node

import (
	"github.com/weir-log/weir/door/inbox"
	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// Checks are those of the uses, and of the tables that SQL sessions use, for verify.Run.
func Checks() []verify.Check {
	return []verify.Check{group.Verify(), sqlfn.Verify(), inbox.Verify(), queue.Verify(), stream.Verify()}
}
