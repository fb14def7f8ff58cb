package system

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
)

// kurrentStub is as much of KurrentDB's protocol as the adapter needs. It is no KurrentDB: it shows
// that the adapter says what it means, and nothing about a server.
type kurrentStub struct {
	streams.UnimplementedStreamsServer
	serverfeatures.UnimplementedServerFeaturesServer

	mu  sync.Mutex // guards all
	all []*streams.ReadResp_ReadEvent_RecordedEvent
}

func (k *kurrentStub) of(stream string) (own []*streams.ReadResp_ReadEvent_RecordedEvent) {
	for _, e := range k.all {
		if string(e.StreamIdentifier.StreamName) == stream {
			own = append(own, e)
		}
	}
	return own
}

func (k *kurrentStub) Append(in grpc.ClientStreamingServer[streams.AppendReq, streams.AppendResp]) error {
	var options *streams.AppendReq_Options
	var proposed []*streams.AppendReq_ProposedMessage
	for {
		r, err := in.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if o := r.GetOptions(); o != nil {
			options = o
		} else {
			proposed = append(proposed, r.GetProposedMessage())
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	stream := options.StreamIdentifier
	at := uint64(len(k.of(string(stream.StreamName))))
	if options.GetNoStream() != nil && at > 0 || options.GetAny() == nil && options.GetNoStream() == nil && options.GetRevision()+1 != at {
		return in.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: &streams.AppendResp_WrongExpectedVersion{
			CurrentRevisionOption: &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: at - 1},
		}}})
	}
	for i, p := range proposed {
		id := &shared.UUID{Value: &shared.UUID_String_{String_: uuid.NewString()}}
		p.Metadata["created"] = "0"
		k.all = append(k.all, &streams.ReadResp_ReadEvent_RecordedEvent{Id: id, StreamIdentifier: stream, StreamRevision: at + uint64(i), Metadata: p.Metadata, Data: p.Data})
	}
	return in.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_Success_{Success: &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: at + uint64(len(proposed)) - 1},
	}}})
}

func (k *kurrentStub) Read(r *streams.ReadReq, out grpc.ServerStreamingServer[streams.ReadResp]) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := r.Options
	some := slices.Clone(k.all)
	if o.GetSubscription() == nil {
		some = k.of(string(o.GetStream().StreamIdentifier.StreamName))
		if len(some) == 0 {
			return out.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: o.GetStream().StreamIdentifier}}})
		}
		if o.ReadDirection == streams.ReadReq_Options_Backwards {
			slices.Reverse(some)
		} else {
			some = some[o.GetStream().GetRevision():]
		}
		some = some[:min(uint64(len(some)), o.GetCount())]
	} else if err := out.Send(&streams.ReadResp{Content: &streams.ReadResp_Confirmation{Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: "1"}}}); err != nil {
		return err
	}
	for _, e := range some {
		if o.GetSubscription() != nil && !strings.HasPrefix(string(e.StreamIdentifier.StreamName), o.GetFilter().GetStreamIdentifier().GetPrefix()[0]) {
			continue
		}
		if err := out.Send(&streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{Event: e}}}); err != nil {
			return err
		}
	}
	return nil
}

func TestKurrentDBsAdapterKnowsVersionsAndConflicts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stub, server := &kurrentStub{}, grpc.NewServer()
	streams.RegisterStreamsServer(server, stub)
	serverfeatures.RegisterServerFeaturesServer(server, stub)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	s, err := dialKurrent(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer s.client.Close()
	ctx := t.Context()
	for _, c := range []struct {
		stream           string
		expected         int64
		values           []string
		after, conflicts int64 // one of them
	}{
		{"currency-1", 0, []string{"a", "b"}, 2, 0},
		{"currency-1", 0, []string{"x"}, 0, 2},
		{"currency-1", 1, []string{"x"}, 0, 2},
		{"currency-1", 2, []string{"c"}, 3, 0},
		{"other-1", 0, []string{"o"}, 1, 0},
		{"currency-1", AnyVersion, []string{"d"}, 4, 0},
	} {
		values := make([][]byte, len(c.values))
		for i, v := range c.values {
			values[i] = []byte(v)
		}
		after, err := s.Append(ctx, c.stream, c.expected, values)
		var conflict *Conflict
		switch {
		case c.conflicts > 0 && (!errors.As(err, &conflict) || conflict.Actual != c.conflicts):
			t.Errorf("%s at %d: %v; a conflict at %d was due", c.stream, c.expected, err, c.conflicts)
		case c.conflicts == 0 && (err != nil || after != c.after):
			t.Errorf("%s at %d: version %d, %v; %d was due", c.stream, c.expected, after, err, c.after)
		}
	}
	for _, c := range []struct {
		from int64
		most int
		want string
	}{{0, 0, "abcd"}, {1, 2, "bc"}, {3, 5, "d"}} {
		versions, values, err := s.ReadStream(ctx, "currency-1", c.from, c.most)
		if got := string(slices.Concat(values...)); err != nil || got != c.want || versions[0] != c.from {
			t.Errorf("from %d at most %d: %q at %v, %v", c.from, c.most, got, versions, err)
		}
	}
	if versions, _, err := s.ReadStream(ctx, "currency-2", 0, 0); err != nil || len(versions) > 0 {
		t.Errorf("a stream that does not exist has %v, %v", versions, err)
	}
	following, stop := context.WithCancel(ctx)
	var got []string
	if err := s.Follow(following, func(f Followed) {
		if got = append(got, string(f.Value)); len(got) == 4 {
			stop()
		}
	}); err != nil || strings.Join(got, "") != "abcd" {
		t.Errorf("followed %q, %v", got, err)
	}
}
