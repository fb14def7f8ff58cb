package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-log/weir/use/group"
)

// groupCodes maps the errors of use/group to Kafka's codes. Clients handle most of these
// themselves.
var groupCodes = []struct {
	err   error
	kafka *kerr.Error
}{
	{group.ErrNotConsumerGroup, kerr.GroupIDNotFound}, // as GroupMetadataManager.getOrMaybeCreateConsumerGroup; it is listed before the errors that it wraps
	{group.ErrInvalidGroup, kerr.InvalidGroupID},
	{group.ErrInvalidSession, kerr.InvalidSessionTimeout},
	{group.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{group.ErrMemberIDRequired, kerr.MemberIDRequired},
	{group.ErrUnknownMember, kerr.UnknownMemberID},
	{group.ErrFencedInstance, kerr.FencedInstanceID},
	{group.ErrIllegalGeneration, kerr.IllegalGeneration},
	{group.ErrRebalancing, kerr.RebalanceInProgress},
	{group.ErrFull, kerr.GroupMaxSizeReached},
	{group.ErrTooMany, kerr.GroupMaxSizeReached}, // clients report it and end; COORDINATOR_NOT_AVAILABLE would let them wait for ever, in silence
	{group.ErrTooLarge, kerr.MessageTooLarge},
	{group.ErrMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{group.ErrNotFound, kerr.GroupIDNotFound},
	{group.ErrNotEmpty, kerr.NonEmptyGroup},
	{group.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{group.ErrFencedEpoch, kerr.FencedMemberEpoch},
	{group.ErrStaleEpoch, kerr.StaleMemberEpoch},
	{group.ErrClassicRequest, kerr.UnsupportedVersion},
	{group.ErrUnreleasedInstance, kerr.UnreleasedInstanceID},
	{group.ErrUnsupportedAssignor, kerr.UnsupportedAssignor},
	{group.ErrInvalidPattern, kerr.InvalidRegularExpression},
	{group.ErrInvalidRequest, kerr.InvalidRequest},
	{group.ErrReadOnly, kerr.GroupAuthorizationFailed}, // these answers have no text; with this code Java says that it may not access the group, and gives up (AbstractCoordinator)
	{group.ErrLoading, kerr.CoordinatorLoadInProgress},
	{group.ErrUnavailable, kerr.CoordinatorNotAvailable},
	{group.ErrMoved, kerr.NotCoordinator},
}

// groupError returns Kafka's code for a group's error; nil if it is none. Call it before checking
// for the store's errors, which a group's error may wrap.
func groupError(err error) *kerr.Error {
	for _, c := range groupCodes {
		if errors.Is(err, c.err) {
			return c.kafka
		}
	}
	return nil
}

// inWords returns a group's error with the error's own text, for an answer that has a field for a
// text. Such a text is about what the client sent, and about its group. Errors that may wrap one of
// the store stay as they are.
func inWords(err error) error {
	if groupError(err) != nil && !errors.Is(err, group.ErrUnavailable) && !errors.Is(err, group.ErrLoading) {
		return denyFor(err)
	}
	return err
}

// host is the client's address as Kafka shows it.
func (r *request) host() string {
	ip, _ := hostPort(r.conn.nc.RemoteAddr())
	return "/" + ip
}

// orEmpty and orNil translate between Kafka's null and our empty string.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
