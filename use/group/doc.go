// Package group is consumer groups: who is a member, who reads which partition, and how far each
// partition was read. It follows Kafka's classic group protocol and its consumer protocol (KIP-848)
// as Apache Kafka does, so any client of them works.
//
// A group is a set of keys in the store. Their values are JSON, which a person can read:
//
//	group/state/<group>                        generation, protocol, leader, members and their assignments
//	group/offset/<group>/<topic id>/<partition> one committed offset
//	group/start/<group>/<topic id>             where the group began in a topic, if it began at the end
//	group/member/<group>/<peer>                the heartbeat of one peer, or of one host
//	group/owner/<group>                        the coordinator's heartbeat, while the group has members that are not peers
//	group/config/<group>                       settings that were made for the group
//
// The names of groups are escaped as in a URL path, so the keys of one group cannot be mistaken for
// another's. Offsets are kept by topic id: a topic that was deleted and created again starts
// without offsets.
//
// The version of a group's state is its fencing token. A new coordinator increments it first, and
// every later change of the group, each committed offset included, checks it. So if two brokers
// both act as the coordinator, the store refuses the changes of the older one. That broker then
// reads the group again, and its members join again or continue. A broker that only reads a group,
// or refuses a request, does not become its coordinator: see own.go.
//
// Two kinds of members share these keys. Members of a Coordinator speak Kafka's protocol to a
// broker. Peers need no broker, only a process that has the store open: each peer reads the group
// from the store, and writes a new assignment if one is needed. The store refuses it if another
// peer changed the group first. Members of Kafka's consumer protocol (KIP-848) live beside the
// peers: a host in the broker that they speak to keeps them in the same state, see host.go. A group
// has either members with a coordinator, or peers and members with a host. Its offsets are the same
// for all of them, and for callers that commit with OffsetEntry.
//
// The sessions of a Coordinator's members are in memory only. A broker that was started again reads
// a group from the store when it is first asked for the group. The first request of a member gives
// all members a full session timeout, and nobody has to rebalance. All members have expired when no
// broker has written the group's heartbeat for longer than the longest of their sessions, by the
// store's clock.
package group
