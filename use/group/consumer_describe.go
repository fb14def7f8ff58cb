package group

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// describePeers returns, by member id, what a description has only for members whose partitions
// weir assigns, and the assignor.
func (c *Coordinator) describePeers(l loaded) (_ map[string]Member, assignor string, err error) {
	r := membership{generation: l.state.Generation}
	for _, m := range l.state.Members {
		decoded, err := m.peerMember()
		if err != nil {
			return nil, "", fmt.Errorf("group %q: member %q: %w", l.name, m.ID, err)
		}
		r.members = append(r.members, decoded)
	}
	slices.SortFunc(r.members, byMemberID)
	topics := r.topics(c.log)
	names := make(map[eventlog.TopicID]string)
	for _, t := range topics {
		names[t.id] = t.name
	}
	targets := make([][]TopicPartition, len(r.members))
	for tp, m := range assign(r.members, topics).owner {
		targets[m] = append(targets[m], tp)
	}
	out := make(map[string]Member)
	h := c.hostIfAny(l.name)
	for i, m := range r.members {
		o := Member{
			Kafka: m.kafka.host != "", Classic: m.kafka.classic, Epoch: r.generation, Topics: m.info.Topics, Pattern: m.kafka.pattern, Rack: m.kafka.rack,
			Has: shares(slices.Concat(m.own, m.revoking), m.names), Target: shares(targets[i], names),
		}
		if len(m.revoking) > 0 {
			o.Epoch--
		}
		if told, is := h.toldEpoch(m.id); is {
			o.Epoch = told
		}
		out[m.id] = o
	}
	assignor = uniformAssignor
	if wishRange(r.members) {
		assignor = rangeAssignor
	}
	return out, assignor, nil
}

// toldEpoch is the epoch that a member of this host was told last. There may be no host.
func (h *host) toldEpoch(member string) (int32, bool) {
	if h == nil {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.members[member]
	return cmp.Or(k, &hosted{}).epoch, k != nil && k.epoch > 0
}

func shares(of []TopicPartition, names map[eventlog.TopicID]string) (out []Share) {
	slices.SortFunc(of, byPlace)
	for _, tp := range of {
		if n := len(out); n == 0 || out[n-1].ID != tp.Topic {
			out = append(out, Share{Topic: names[tp.Topic], ID: tp.Topic})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	return out
}
