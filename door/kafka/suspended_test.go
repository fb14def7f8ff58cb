package kafka_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/store/memory"
)

// What began before a suspension ends with it, also if a new connection is the first to notice;
// that connection goes on.
func TestASuspensionEndsOnlyWhatWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p kafka.Pulse
		p.Beats()
		before, justWoke := p.Until()
		if justWoke {
			t.Error("there was no suspension")
		}
		time.Sleep(time.Minute) // without a beat
		after, justWoke := p.Until()
		if before.Err() == nil || after.Err() != nil || !justWoke {
			t.Errorf("after a suspension: the context of before %v, the new one %v; just woke: %v", before.Err(), after.Err(), justWoke)
		}
		if missed := p.Beats(); missed != time.Minute || after.Err() != nil {
			t.Errorf("the next beat reports %v, and the new context %v", missed, after.Err())
		}
		if missed := p.Beats(); missed != 0 {
			t.Errorf("the beat after it reports %v again", missed)
		}
	})
}

// late is a listener that gives its clients away when it is closed.
type late struct {
	net.Listener
	accepted chan struct{} // a client for each value
	closed   chan struct{}
	close    func()
}

func listenLate(t *testing.T) late {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	return late{l, make(chan struct{}, 1), closed, sync.OnceFunc(func() { close(closed) })}
}

func (l late) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
	}
	<-l.closed
	return nc, err
}

func (l late) Close() error {
	l.close()
	return l.Listener.Close()
}

// A server that stops resets a connection that got no answer yet: franz-go takes an end for a
// refusal and fails, and repeats after a reset.
func TestAStopResetsWhatWasNotAnswered(t *testing.T) {
	b := start(t, kafka.Config{})
	served, silent := b.dial(), b.dial()
	req := kmsg.NewPtrApiVersionsRequest()
	served.send(frame(req, 1))
	served.receive(req, 1)
	b.stop()
	if _, err := served.nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection that was served ends with %v", err)
	}
	if _, err := silent.nc.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection that was not ends with %v", err)
	}

	l := listenLate(t)
	b = startAt(t, memory.New(), l, kafka.Config{})
	silent = b.dial()
	<-l.accepted
	b.stop()
	if _, err := silent.nc.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that the server gets when it stops ends with %v", err)
	}
}
