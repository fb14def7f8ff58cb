package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"github.com/weir-log/weir/internal/proctest"
)

// kurrentDB is KurrentDB, which was EventStoreDB, by its own client. Its server is in no registry
// of packages, so that only its client was tried here, on a stub of the server.
func kurrentDB() System {
	settings := Settings{"flush": "every acknowledgement is on disk (the default)", "copies": "1", "settings": "KurrentDB's defaults, insecure, without telemetry",
		"client": "KurrentDB's own: AppendToStream; a projection subscribes to $all, filtered by the prefix of the streams; this adapter was tried on a stub only"}
	return System{
		Name: "kurrentdb", About: "KurrentDB, one node, by its own client; not run by us", Needs: "KurrentDB 25.0 or later", Program: kurrentProgram, Ordered: true,
		Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
		Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
			addresses, err := proctest.FreeAddresses(2)
			if err != nil {
				return nil, err
			}
			address := addresses[0]
			_, node, _ := strings.Cut(address, ":")
			_, replication, _ := strings.Cut(addresses[1], ":")
			p, err := StartProcess(ctx, place.Dir, address, "env", "KURRENTDB_TELEMETRY_OPTOUT=true", kurrentProgram, "--insecure",
				"--node-ip=127.0.0.1", "--node-port="+node, "--replication-ip=127.0.0.1", "--replication-port="+replication,
				"--db="+filepath.Join(place.Dir, "db"), "--index="+filepath.Join(place.Dir, "index"), "--log="+filepath.Join(place.Dir, "log"))
			if err != nil {
				return nil, err
			}
			streams, err := dialKurrent(address)
			if err != nil {
				return nil, errors.Join(err, p.Stop())
			}
			return &kurrentServer{kurrentStreams: streams, p: p}, nil
		},
	}
}

// kurrentProgram is the server, as its packages for Linux install it.
const kurrentProgram = "kurrentd"

func dialKurrent(address string) (*kurrentStreams, error) {
	config, err := kurrentdb.ParseConnectionString("kurrentdb://" + address + "?tls=false")
	if err != nil {
		return nil, err
	}
	config.Logger = kurrentdb.NoopLogging()
	client, err := kurrentdb.NewClient(config)
	return &kurrentStreams{client}, err
}

type kurrentServer struct {
	*kurrentStreams
	p *Process
}

func (s *kurrentServer) Target() any                         { return s.kurrentStreams }
func (s *kurrentServer) Close() error                        { return errors.Join(s.client.Close(), s.p.Stop()) }
func (s *kurrentServer) Faults() Faults                      { return s.p.faults() }
func (s *kurrentServer) Size(context.Context) (int64, error) { return dirSize(s.p.dir) }

type kurrentStreams struct{ client *kurrentdb.Client }

func (*kurrentStreams) CreateStreams(context.Context) error { return nil }

// Append sends events. The revision of a stream's first event is 0, so that a version here is one
// more than the revision of its last event.
func (s *kurrentStreams) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	var state kurrentdb.StreamState
	switch expected {
	case AnyVersion:
		state = kurrentdb.Any{}
	case 0:
		state = kurrentdb.NoStream{}
	default:
		state = kurrentdb.Revision(uint64(expected - 1))
	}
	events := make([]kurrentdb.EventData, len(values))
	for i, v := range values {
		events[i] = kurrentdb.EventData{EventID: uuid.New(), EventType: "measured", ContentType: kurrentdb.ContentTypeBinary, Data: v}
		if len(v) > 0 && v[0] == '{' {
			events[i].ContentType = kurrentdb.ContentTypeJson
		}
	}
	done, err := s.client.AppendToStream(ctx, stream, kurrentdb.AppendToStreamOptions{StreamState: state}, events...)
	if err == nil {
		return int64(done.NextExpectedVersion) + 1, nil
	}
	if !says(err, kurrentdb.ErrorCodeWrongExpectedVersion) {
		return 0, fmt.Errorf("%w (%w)", ErrUnsure, err)
	}
	actual, failed := s.version(ctx, stream)
	if failed != nil {
		return 0, failed
	}
	return 0, &Conflict{Actual: actual}
}

func says(err error, code kurrentdb.ErrorCode) bool {
	var said *kurrentdb.Error
	return errors.As(err, &said) && said.IsErrorCode(code)
}

func (s *kurrentStreams) version(ctx context.Context, stream string) (after int64, err error) {
	err = s.read(ctx, stream, kurrentdb.ReadStreamOptions{Direction: kurrentdb.Backwards, From: kurrentdb.End{}}, 1, func(e *kurrentdb.RecordedEvent) { after = int64(e.EventNumber) + 1 })
	return after, err
}

// read hands the events of a stream to a function. A stream that does not exist has none.
func (s *kurrentStreams) read(ctx context.Context, stream string, o kurrentdb.ReadStreamOptions, most uint64, hand func(*kurrentdb.RecordedEvent)) error {
	found, err := s.client.ReadStream(ctx, stream, o, most)
	if err != nil {
		return err
	}
	defer found.Close()
	for {
		e, err := found.Recv()
		if err == nil {
			hand(e.OriginalEvent())
			continue
		}
		if errors.Is(err, io.EOF) || says(err, kurrentdb.ErrorCodeResourceNotFound) {
			return nil
		}
		return err
	}
}

func (s *kurrentStreams) ReadStream(ctx context.Context, stream string, from int64, most int) (versions []int64, values [][]byte, err error) {
	count := uint64(most)
	if most == 0 {
		count = 1 << 62
	}
	err = s.read(ctx, stream, kurrentdb.ReadStreamOptions{From: kurrentdb.Revision(uint64(from))}, count, func(e *kurrentdb.RecordedEvent) {
		versions, values = append(versions, int64(e.EventNumber)), append(values, e.Data)
	})
	return versions, values, err
}

// Follow subscribes to all streams from the beginning, as KurrentDB's documentation says for a read
// model (Catch-up subscriptions, "Server-side filtering").
func (s *kurrentStreams) Follow(ctx context.Context, deliver func(Followed)) error {
	subscription, err := s.client.SubscribeToAll(ctx, kurrentdb.SubscribeToAllOptions{
		From: kurrentdb.Start{}, Filter: &kurrentdb.SubscriptionFilter{Type: kurrentdb.StreamFilterType, Prefixes: []string{category + "-"}},
	})
	if err != nil {
		return errUnless(ctx, err)
	}
	defer subscription.Close()
	for ctx.Err() == nil {
		switch said := subscription.Recv(); {
		case said.SubscriptionDropped != nil:
			return errUnless(ctx, said.SubscriptionDropped.Error)
		case said.EventAppeared != nil:
			e := said.EventAppeared.OriginalEvent()
			deliver(Followed{Stream: e.StreamID, Version: int64(e.EventNumber), Value: e.Data, Saved: time.Now()})
		}
	}
	return nil
}
