package group

import (
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// The errors that callers get. Each has one of Kafka's error codes.
var (
	// ErrInvalidGroup: the group's name is empty where it may not be, or longer than nameMax.
	ErrInvalidGroup = errors.New("invalid group name")
	// ErrInvalidSession: the session timeout is outside its bounds, or a peer's heartbeat interval
	// is more than a third of it.
	ErrInvalidSession = errors.New("invalid session timeout")
	// ErrInconsistentProtocol: the member offers no protocol that all other members offer, or the
	// partitions are assigned in a way that it does not take part in.
	ErrInconsistentProtocol = errors.New("no protocol in common with the group")
	// ErrMemberIDRequired: join again with the member id that came with this error (KIP-394).
	ErrMemberIDRequired = errors.New("member id required")
	// ErrUnknownMember: the group has no such member, or not any more. Join again as a new one.
	ErrUnknownMember = errors.New("unknown member")
	// ErrFencedInstance: another process joined with the same group instance id (KIP-345).
	ErrFencedInstance = errors.New("fenced by another member with the same instance id")
	// ErrIllegalGeneration: the group moved on to another generation.
	ErrIllegalGeneration = errors.New("illegal generation")
	// ErrRebalancing: the group is rebalancing. Join again.
	ErrRebalancing = errors.New("rebalance in progress")
	// ErrFull: the group has as many members as it may.
	ErrFull = errors.New("group is full")
	// ErrTooMany: the store, or the client, has as many groups as it may; this would be one more.
	ErrTooMany = errors.New("too many groups")
	// ErrTooLarge: what a member brought is larger than the group can keep.
	ErrTooLarge = errors.New("too large")
	// ErrMetadataTooLarge: the metadata of a committed offset is longer than 4096 bytes.
	ErrMetadataTooLarge = errors.New("offset metadata too large")
	// ErrNotFound: there is no such group.
	ErrNotFound = errors.New("no such group")
	// ErrNotEmpty: the group has members.
	ErrNotEmpty = errors.New("group is not empty")
	// ErrSubscribed: the group's members read this topic.
	ErrSubscribed = errors.New("group is subscribed to the topic")

	// ErrFenced: the peer was evicted (no heartbeat within its session timeout), the partition is
	// another peer's now, or the store was rewound and lost the group's position, so that the
	// partition begins again. Nothing was committed.
	ErrFenced = errors.New("fenced: the partition is no longer assigned to this member, or begins again")

	// The errors of members of Kafka's consumer protocol (KIP-848).

	// ErrFencedEpoch: the epoch in the heartbeat is not the one that the member has. The member
	// gives up its partitions, and joins again.
	ErrFencedEpoch = errors.New("fenced member epoch")
	// ErrStaleEpoch: the offsets are those of an earlier assignment. The member tries again after
	// its next heartbeat.
	ErrStaleEpoch = errors.New("stale member epoch")
	// ErrClassicRequest: a member of the consumer protocol sent a request of the classic one.
	ErrClassicRequest = errors.New("a request of the classic protocol")
	// ErrUnreleasedInstance: another member with the same instance id is in the group.
	ErrUnreleasedInstance = errors.New("instance id in use")
	// ErrUnsupportedAssignor: neither uniform nor range.
	ErrUnsupportedAssignor = errors.New("unsupported assignor")
	// ErrInvalidPattern: the subscription is not a regular expression of RE2.
	ErrInvalidPattern = errors.New("invalid regular expression")
	// ErrInvalidRequest: a heartbeat lacks what it must have, or has what it may not.
	ErrInvalidRequest = errors.New("invalid heartbeat")
	// ErrNotConsumerGroup: members of the classic protocol are in the group, and it cannot change
	// to the consumer protocol; or peers of an older weir, which know no hosts, are in it.
	ErrNotConsumerGroup = errors.New("not a consumer group")

	// ErrReadOnly: this process only reads the store, so it has no members and commits nothing.
	// Offsets that others commit can be read.
	ErrReadOnly = fmt.Errorf("no groups can be joined or changed here: %w", eventlog.ErrReadOnly)

	// errHosted: the group's members share partitions through the store, so a host is their
	// coordinator.
	errHosted = errors.New("the group has no coordinator")

	// ErrLoading: the group could not be read from the store yet. Try again.
	ErrLoading = errors.New("group is not loaded")
	// ErrUnavailable: the store did not take the change. Try again.
	ErrUnavailable = errors.New("coordinator not available")
	// ErrMoved: another process coordinates the group, or this one stops. Find the coordinator, and
	// try again. Nothing happened, unless the error is eventlog.ErrUnsure as well.
	ErrMoved = errors.New("not the coordinator")
)

// AddError is an error of a function that adds changes to a commit (Peer.CommitWith): nothing was
// committed.
type AddError struct{ Err error }

func (e *AddError) Error() string { return e.Err.Error() }
func (e *AddError) Unwrap() error { return e.Err }
