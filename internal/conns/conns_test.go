package conns_test

import (
	"errors"
	"net"
	"testing"

	"github.com/weir-log/weir/internal/conns"
)

func from(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

func TestOneNetworkDoesNotTakeAllConnections(t *testing.T) {
	l := conns.NewLimit(8, 0)
	enter := func(ip string, want bool) (leave func()) {
		t.Helper()
		leave, err := l.Enter(from(ip))
		if (err == nil) != want {
			t.Errorf("a connection from %s: %v", ip, err)
		}
		return leave
	}
	leave := enter("2001:db8::1", true)
	enter("2001:db8::2", true)
	enter("2001:db8::3", true)
	enter("2001:db8::4", true)
	enter("2001:db8::5", false) // half of what others leave
	enter("2001:db8:0:1::1", true)
	enter("10.0.0.1", true)
	enter("::ffff:10.0.0.1", true) // the same address
	enter("10.0.0.2", true)
	enter("10.0.0.3", false)
	leave()
	leave()
	enter("10.0.0.3", true)
	enter("10.0.0.4", false)
}

func TestTheLimitOfOneNetworkIsTold(t *testing.T) {
	l := conns.NewLimit(3, 2)
	for _, ip := range []string{"2001:db8::1", "2001:db8::2"} {
		if _, err := l.Enter(from(ip)); err != nil {
			t.Error(err)
		}
	}
	var full *conns.FullError
	if _, err := l.Enter(from("2001:db8::3")); !errors.As(err, &full) || full.From.String() != "2001:db8::/64" || full.Open != 2 {
		t.Errorf("a third one from a network: %v", err)
	}
	if _, err := l.Enter(from("10.0.0.1")); err != nil {
		t.Error(err)
	}
	if _, err := l.Enter(from("10.0.0.2")); !errors.As(err, &full) || full.From.IsValid() || full.Open != 3 {
		t.Errorf("a fourth one: %v", err)
	}
}
