// Package group is consumer groups: who is a member, who reads which partition, and how far each partition was read.
// It follows Kafka's classic group protocol as Apache Kafka 4.2 does, so any client can be the other side.
//
// A group is keys in the store, JSON a person can read:
//
//	group/state/<group>                        generation, protocol, leader, members and their assignments
//	group/offset/<group>/<topic id>/<partition> one committed offset
//	group/member/<group>/<peer>                one peer's sign of life
//	group/owner/<group>                        the sign of the coordinator, while the group has members that are not peers
//
// The names of groups are escaped as in a URL path, so no name can reach into another's keys. Offsets are
// kept by topic id: a topic that was deleted and made again starts without any.
//
// The version of a group's state is its fencing token. Whoever coordinates a group moves it forward first, and every
// later change of the group, each committed offset included, demands that it is still there. So two brokers that both
// take themselves for the coordinator cannot harm each other's work: the one that was overtaken is refused by the store, reads
// the group anew, and its members join again or go on. Looking at a group, and refusing a request, changes nothing: see own.go.
//
// Two kinds of members share these keys. Those of a Coordinator speak Kafka's protocol to a broker. Peers meet in the store itself, from any
// process that has it open: each looks at the group and changes what does not fit, provided that nobody was faster. A group has members of one
// kind at a time; its offsets are the same for both, and for whoever commits with OffsetEntry.
//
// The sessions of a Coordinator's members live in memory only. A broker that starts finds groups as they were. The first member that speaks up
// gives all of them a full session timeout, and nobody has to rebalance. Members are gone when no broker has signed for longer than their
// session, by the store's clock.
package group
