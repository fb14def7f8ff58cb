package kafka_test

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
)

// A small request of a group's leader is answered with what all members offer, and that of a member with its assignment, as often as they ask. Clients that
// take no answer hold at most the memory for requests, in every version.
func TestAnswersToMembersThatNobodyTakesStayWithinTheirBudget(t *testing.T) {
	const (
		clients = 100
		large   = 900 << 10 // of what a member offers, and of its assignment
		each    = 96 << 10  // as above
		limit   = 2*pool + clients*each
	)
	if kafka.ArrayCopies > 1 {
		t.Skip("the race detector needs memory of its own")
	}
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		b, _ := wealthy(t, l)
		join := func(metadata []byte) *kmsg.JoinGroupRequest {
			req := kmsg.NewPtrJoinGroupRequest()
			req.Version, req.Group, req.ProtocolType = 3, "members", "consumer"
			req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30*60*1000, 30*60*1000
			req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: metadata}}
			return req
		}
		leads := join([]byte("small"))
		joined := ask[*kmsg.JoinGroupResponse](b, leads)
		wantCode(t, "join", joined.ErrorCode, nil)
		leads.MemberID = joined.MemberID
		second, first := l.patient(t), l.patient(t)
		second.send(frame(join(make([]byte, large)), 1))
		synctest.Wait()
		first.send(frame(leads, 1))
		joined = first.receive(leads, 1).(*kmsg.JoinGroupResponse)
		if len(joined.Members) != 2 {
			t.Fatalf("the leader is told of %d members", len(joined.Members))
		}
		first.nc.Close()
		second.nc.Close()

		crowded := func(req kmsg.Request, newest int16) {
			for version := range newest + 1 {
				req.SetVersion(version)
				raw := frame(req, 1)
				if held := hoarders(t, l, raw, clients); held > limit {
					t.Errorf("%T, version %d: %d clients that take no answer hold %d bytes, the limit is %d", req, version, clients, held, limit)
				}
				w := l.patient(t)
				w.send(raw)
				if n := len(w.receive(req, 1).AppendTo(nil)); n < large {
					t.Errorf("%T, version %d is answered with %d bytes", req, version, n)
				}
				w.nc.Close()
			}
		}
		crowded(leads, b.maxVersion(kmsg.JoinGroup))
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.MemberID, sync.Generation = "members", joined.MemberID, joined.Generation
		sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: make([]byte, large)}}
		sync.Version = 3
		wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](b, sync).ErrorCode, nil)
		sync.GroupAssignment = nil
		crowded(sync, b.maxVersion(kmsg.SyncGroup))
		b.stop()
	})
}
