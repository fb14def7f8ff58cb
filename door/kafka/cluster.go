package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/broker"
	"github.com/weir-log/weir/use/group"
)

// clusterKey is the key of the cluster id in the store.
const clusterKey = "cluster"

type cluster struct {
	ID string `json:"id"`
}

// clusterID returns the store's cluster id, and makes one on first use: 22 characters, as Kafka's.
// If the log is read-only and no process has made one, it is this process's own.
func clusterID(ctx context.Context, log *eventlog.Log) (string, error) {
	for {
		kv, err := log.Get(ctx, clusterKey)
		if err != nil {
			return "", err
		}
		if kv.Version > 0 {
			var c cluster
			if err := json.Unmarshal(kv.Value, &c); err != nil {
				return "", fmt.Errorf("key %q holds %q: %w", clusterKey, kv.Value, err)
			}
			return c.ID, nil
		}
		var id [16]byte
		rand.Read(id[:])
		value, err := json.Marshal(cluster{ID: base64.RawURLEncoding.EncodeToString(id[:])})
		if err != nil {
			return "", err
		}
		_, err = log.Append(ctx, eventlog.Entry{
			Checks: []eventlog.Check{{Key: clusterKey, Version: 0}},
			Puts:   []eventlog.Put{{Key: clusterKey, Version: 1, Value: value}},
		})
		if errors.Is(err, eventlog.ErrReadOnly) {
			return base64.RawURLEncoding.EncodeToString(id[:]), nil
		}
		if err != nil && !errors.Is(err, eventlog.ErrStale) { // stale: another process was first
			return "", err
		}
	}
}

// clusterPause is the time between two attempts to read the cluster id while the store is
// unavailable.
const clusterPause = 250 * time.Millisecond

// awaitClusterID calls clusterID, and repeats the call while the store is unavailable. Clients can
// already connect; they wait until it returns.
func (s *Server) awaitClusterID(ctx context.Context) (string, error) {
	for told := false; ; {
		id, err := clusterID(ctx, s.log)
		if !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnsure) {
			return id, err
		}
		if !told {
			told = true
			s.cfg.Logger.Warn("cannot read the cluster id from the store, and Kafka clients wait for it; trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(clusterPause):
		}
	}
}

// view returns the brokers that live. A request that needs several facts of the view calls view
// once, so that the facts fit together.
func (s *Server) view() *broker.View {
	if s.cfg.Brokers == nil {
		return s.alone
	}
	return s.cfg.Brokers.View()
}

// addressOf returns the address of a broker that clients of this listener are told to use.
func (s *Server) addressOf(r *request, v *broker.View, b broker.Broker) (host string, port int32) {
	if !v.Is(b) {
		return hostPort(address(b.Addresses[r.conn.at.Name]))
	}
	if r.conn.at.Advertised == "" {
		return hostPort(r.conn.nc.LocalAddr())
	}
	return hostPort(address(r.conn.at.Advertised))
}

// coordinates returns ErrMoved if clients of a group belong to another broker, so that all members
// of a group meet in one. Offsets are committed and read through any broker. If the group's broker
// has the same address as this one, the client is at the right address and at the wrong process:
// the connection is closed after the answer, so that the client's next connection may reach the
// right process.
func (s *Server) coordinates(r *request, name string) error {
	v := s.view()
	if c := v.Coordinator(name); !v.Is(c) {
		r.hangUp = r.hangUp || v.AtOurAddress(c)
		return fmt.Errorf("group %q: %w: clients find it at broker %d", shorten(name), group.ErrMoved, c.ID)
	}
	return nil
}

// checkAdvertised refuses an address that no client could use; an empty one is allowed.
func checkAdvertised(a string) error {
	if a == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return errors.New("it must be HOST:PORT, with a port from 1 to 65535")
	}
	return nil
}

// address is a host:port as a net.Addr.
type address string

var _ net.Addr = address("")

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// Sets of operations: bit n is the operation with code n in Kafka's AclOperation. A client that may
// do everything is told the whole set (request.operations).
const (
	opRead            = 1 << 3
	opWrite           = 1 << 4
	opCreate          = 1 << 5
	opDelete          = 1 << 6
	opAlter           = 1 << 7
	opDescribe        = 1 << 8
	opClusterAction   = 1 << 9
	opDescribeConfigs = 1 << 10
	opAlterConfigs    = 1 << 11
	opIdempotentWrite = 1 << 12

	clusterOperations = opCreate | opClusterAction | opDescribeConfigs | opAlterConfigs | opIdempotentWrite | opAlter | opDescribe
	topicOperations   = opRead | opWrite | opCreate | opDescribe | opDelete | opAlter | opDescribeConfigs | opAlterConfigs
	groupOperations   = opRead | opDescribe | opDelete | opDescribeConfigs | opAlterConfigs
)
