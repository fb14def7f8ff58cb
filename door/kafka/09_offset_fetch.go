package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// offsetFetch returns the committed offsets of groups: of one group up to version 7, of any number
// since version 8 (KIP-709). RequireStable needs no wait: offsets are not committed in Kafka
// transactions.
func (s *Server) offsetFetch(ctx context.Context, r *request, in *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	out := in.ResponseKind().(*kmsg.OffsetFetchResponse)
	asks := in.Groups
	if in.Version < 8 {
		asks = []kmsg.OffsetFetchRequestGroup{theGroup(in)}
	}
	all := s.resolveOffsets(ctx, r, in, asks)
	if err := s.fetchOffsets(ctx, r, all); err != nil {
		return nil
	}
	for _, one := range all {
		out.Groups = append(out.Groups, one.answer)
	}
	if in.Version < 8 {
		answer := all[0].answer
		out.Groups, out.ErrorCode = nil, answer.ErrorCode
		for _, t := range answer.Topics {
			row := kmsg.NewOffsetFetchResponseTopic()
			row.Topic = t.Topic
			for _, p := range t.Partitions {
				if in.Version < 2 && answer.ErrorCode != 0 {
					p.ErrorCode = answer.ErrorCode // the response has no other field for it
				}
				row.Partitions = append(row.Partitions, kmsg.OffsetFetchResponseTopicPartition(p))
			}
			out.Topics = append(out.Topics, row)
		}
	}
	return out
}

// theGroup is the only group that an older request asks for.
func theGroup(in *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	ask := kmsg.NewOffsetFetchRequestGroup()
	ask.Group = in.Group
	if in.Topics != nil {
		ask.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range in.Topics {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.Partitions = t.Topic, t.Partitions
		ask.Topics = append(ask.Topics, topic)
	}
	return ask
}

// askedOffsets is one group of a request: its answer, and what is still to be read for it.
type askedOffsets struct {
	ask    kmsg.OffsetFetchRequestGroup
	answer kmsg.OffsetFetchResponseGroup
	which  []group.TopicPartition // the partitions of the answer's rows; nil: all in which the group has committed
	err    error
}

// resolveOffsets checks the groups of a request, each once, and makes the rows of their partitions.
func (s *Server) resolveOffsets(ctx context.Context, r *request, in *kmsg.OffsetFetchRequest, asks []kmsg.OffsetFetchRequestGroup) (all []*askedOffsets) {
	again := repeated(asks, func(g kmsg.OffsetFetchRequestGroup) string { return g.Group })
	var ofMembers []string
	for _, ask := range asks {
		skip, err := again.refuse(ask.Group)
		if skip {
			continue
		}
		if err == nil {
			err = r.permit(acl.Describe, acl.Group, ask.Group)
		}
		if err == nil && byMember(in.Version, ask) {
			ofMembers = append(ofMembers, ask.Group)
		}
		one := &askedOffsets{ask: ask, answer: kmsg.NewOffsetFetchResponseGroup(), err: err}
		one.answer.Group = ask.Group
		all = append(all, one)
	}
	hosted, unread := s.groups.Hosted(ctx, ofMembers)
	for _, one := range all {
		if one.err == nil && byMember(in.Version, one.ask) {
			if one.err = unread; hosted[one.ask.Group] { // CheckEpoch makes this process adopt all members of the group, so only the group's coordinator may call it
				one.err = s.coordinates(r, one.ask.Group)
			}
			if one.err == nil && hosted[one.ask.Group] {
				one.err = s.groups.CheckEpoch(ctx, one.ask.Group, orEmpty(one.ask.MemberID), one.ask.MemberEpoch)
			}
		}
		if one.err == nil {
			s.resolveRows(ctx, r, in.Version >= 10, one)
		}
	}
	return all
}

// resolveRows makes the rows of the requested partitions, each once; none if topics is null.
func (s *Server) resolveRows(ctx context.Context, r *request, byID bool, one *askedOffsets) {
	ask := one.ask
	if ask.Topics == nil {
		return
	}
	one.which = []group.TopicPartition{} // an empty list means no partitions; null means all
	topics := merge(ask.Topics, func(t kmsg.OffsetFetchRequestGroupTopic) (string, []int32) {
		return nameOrID(&t.Topic, t.TopicID), t.Partitions
	})
	for _, m := range topics {
		t := ask.Topics[m.first]
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		topic, err := s.topicEither(ctx, r, acl.Describe, t.Topic, t.TopicID, byID)
		for _, p := range m.partitions {
			a := committedRow(group.Committed{TopicPartition: group.TopicPartition{Partition: p}, Offset: -1, LeaderEpoch: -1})
			if err != nil && (byID || !isNone(err)) {
				a.ErrorCode = errorCode(err)
			}
			row.Partitions = append(row.Partitions, a)
			one.which = append(one.which, group.TopicPartition{Topic: topic.ID, Partition: p})
		}
		one.answer.Topics = append(one.answer.Topics, row)
	}
}

// fetchOffsets fills in the offsets of all groups of a request. It fails if the claim for the
// answer's memory fails.
func (s *Server) fetchOffsets(ctx context.Context, r *request, all []*askedOffsets) error {
	var crowded error
	claim := func(bytes int) error { crowded = r.claimAnswer(ctx, bytes); return crowded }
	var wants []group.Wanted
	var of []*askedOffsets
	for _, one := range all {
		if one.err == nil {
			wants, of = append(wants, group.Wanted{Group: one.answer.Group, Of: one.which}), append(of, one)
		}
	}
	found, err := s.groups.FetchEach(ctx, wants, claim)
	if crowded != nil {
		return crowded
	}
	if err != nil {
		s.trouble("OffsetFetch", err)
	}
	for i, one := range of {
		switch {
		case err != nil:
			one.err = err
		case found[i].Err != nil:
			s.trouble("OffsetFetch", found[i].Err)
			one.err = found[i].Err
		case one.which == nil:
			one.answer.Topics = allRows(r, found[i].Offsets)
		default:
			fillRows(one.answer.Topics, found[i].Offsets)
		}
	}
	for _, one := range all {
		one.answer.ErrorCode = errorCode(one.err)
	}
	return nil
}

// allRows are the rows of all offsets of a group in topics that the client may describe.
func allRows(r *request, offsets []group.Committed) (rows []kmsg.OffsetFetchResponseGroupTopic) {
	for _, c := range offsets {
		if !r.may(acl.Describe, acl.Topic, c.Name) {
			continue
		}
		if n := len(rows); n == 0 || rows[n-1].TopicID != c.Topic {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic, t.TopicID = c.Name, c.Topic
			rows = append(rows, t)
		}
		t := &rows[len(rows)-1]
		t.Partitions = append(t.Partitions, committedRow(c))
	}
	return rows
}

func fillRows(rows []kmsg.OffsetFetchResponseGroupTopic, offsets []group.Committed) {
	i := 0
	for t := range rows {
		for p := range rows[t].Partitions {
			if a := &rows[t].Partitions[p]; a.ErrorCode == 0 {
				*a = committedRow(offsets[i])
			}
			i++
		}
	}
}

// isNone reports whether err says that the topic does not exist. If the request has the topic's
// name and not its id, the answer is then that no offset is committed. After other errors the
// answer has their code, because it is unknown what is committed.
func isNone(err error) bool {
	_, invalid := errors.AsType[*eventlog.InvalidError](err)
	return invalid || errors.Is(err, eventlog.ErrUnknownTopic)
}

func committedRow(c group.Committed) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = c.Partition, int64(c.Offset), c.LeaderEpoch, &c.Metadata
	return p
}

// byMember reports whether a member of the consumer protocol asks (KIP-848).
func byMember(version int16, ask kmsg.OffsetFetchRequestGroup) bool {
	return version >= 9 && (ask.MemberID != nil || ask.MemberEpoch >= 0)
}
