// Package group is consumer groups: who is a member, who reads which partition, and how far each partition was read.
// It follows Kafka's classic group protocol as Apache Kafka 4.2 does, so any client can be the other side.
//
// A group is keys in the store, JSON a person can read:
//
//	group/state/<group>                        generation, protocol, leader, members and their assignments
//	group/offset/<group>/<topic id>/<partition> one committed offset
//	group/member/<group>/<peer>                one peer's heartbeat
//	group/owner/<group>                        the coordinator's heartbeat, while the group has members that are not peers
//
// The names of groups are escaped as in a URL path, so no name can reach into another's keys. Offsets are
// kept by topic id: a topic that was deleted and created again starts without offsets.
//
// The version of a group's state is its fencing token. A new coordinator increments it first, and every later change of the group,
// each committed offset included, checks it. So two brokers that both take themselves for the coordinator cannot harm each other's
// work: the store refuses the older one, which then reads the group again, and its members join again or go on. Reading a group, and
// refusing a request, changes nothing: see own.go.
//
// Two kinds of members share these keys. Those of a Coordinator speak Kafka's protocol to a broker. Peers coordinate through the
// store, from any process that has it open: each reads the group and writes a new assignment if it must, provided that no other peer
// was faster. A group has members of one
// kind at a time; its offsets are the same for both, and for whoever commits with OffsetEntry.
//
// The sessions of a Coordinator's members are in memory only. A broker that starts finds groups as they were. The first request of a member
// gives all members a full session timeout, and nobody has to rebalance. Members are gone when no broker has sent a heartbeat for longer than
// their session, by the store's clock.
package group
