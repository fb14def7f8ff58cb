// Package keys says where the keys of all uses live on a store made of shards. What opens a store
// passes Rules to store.Open.
package keys

import (
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/stream"
)

// InboxPrefix begins the keys of door/inbox. They end with the number of a partition, or are on
// shard 0.
const InboxPrefix = "inbox/"

// Rules are the rules of the log and of the uses. Keys without a rule, such as those of queues,
// users and topics, live on shard 0.
func Rules() []eventlog.KeyRule {
	return slices.Concat(eventlog.KeyRules(), group.KeyRules(), stream.KeyRules(), []eventlog.KeyRule{{Prefix: InboxPrefix, By: eventlog.ByPartition}})
}
