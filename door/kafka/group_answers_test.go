package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A small request of a group's leader is answered with what all members offer, and that of a member
// with its assignment, as often as they ask. Clients that take no answer hold at most the memory
// for requests, in every version.
func TestAnswersToMembersThatNobodyTakesStayWithinTheirBudget(t *testing.T) {
	const (
		clients = 100
		large   = 900 << 10 // of what a member offers, and of its assignment
		each    = 96 << 10  // as above
		limit   = 2*pool + clients*each
	)
	measuresMemory(t)
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

// Members may have long names: their clients', and their own where they are static.
func TestDescribedMembersThatNobodyTakesAreClaimed(t *testing.T) {
	const (
		clients = 50
		members = 20
		long    = 30_000
		limit   = 2*pool + clients*(96<<10)
	)
	measuresMemory(t)
	crowd(t, func(t *testing.T, l *pipes, b *broker, _ *troubled) {
		name := strings.Repeat("n", long)
		var joining []*wire
		for n := range members {
			req := kmsg.NewPtrJoinGroupRequest()
			req.Version, req.Group, req.ProtocolType, req.SessionTimeoutMillis = 5, "g", "consumer", 30*60*1000
			req.InstanceID = kmsg.StringPtr(fmt.Sprint(n, name[:long-10]))
			req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
			w := l.patient(t)
			w.send(kmsg.NewRequestFormatter(kmsg.FormatterClientID(name)).AppendRequest(nil, req, 1))
			joining = append(joining, w)
			synctest.Wait()
		}
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g"}
		for version := range b.maxVersion(kmsg.DescribeGroups) + 1 {
			req.Version = version
			got := ask[*kmsg.DescribeGroupsResponse](b, req)
			if n := len(got.Groups[0].Members); n != members {
				t.Fatalf("version %d describes %d members", version, n)
			}
			if held := hoarders(t, l, frame(req, 1), clients); held > limit {
				t.Errorf("version %d: %d clients that take no answer hold %d bytes, the limit is %d", version, clients, held, limit)
			}
		}
		for _, w := range joining {
			w.nc.Close()
		}
	})
}

func TestListedGroupsThatNobodyTakesAreClaimed(t *testing.T) {
	const (
		clients = 50
		groups  = 20
		long    = 30_000
		limit   = 2*pool + clients*(96<<10)
	)
	measuresMemory(t)
	crowd(t, func(t *testing.T, l *pipes, b *broker, _ *troubled) {
		for n := range groups {
			join := kmsg.NewPtrJoinGroupRequest()
			join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 3, fmt.Sprint("g", n), strings.Repeat("p", long), 30*60*1000
			join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
			joined := ask[*kmsg.JoinGroupResponse](b, join)
			sync := kmsg.NewPtrSyncGroupRequest()
			sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, join.Group, joined.MemberID, joined.Generation
			wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](b, sync).ErrorCode, nil)
		}
		req := kmsg.NewPtrListGroupsRequest()
		for version := range b.maxVersion(kmsg.ListGroups) + 1 {
			req.Version = version
			if n := len(ask[*kmsg.ListGroupsResponse](b, req).Groups); n != groups {
				t.Fatalf("version %d lists %d groups", version, n)
			}
			if held := hoarders(t, l, frame(req, 1), clients); held > limit {
				t.Errorf("version %d: %d clients that take no answer hold %d bytes, the limit is %d", version, clients, held, limit)
			}
		}
	})
}
