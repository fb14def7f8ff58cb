package proctest

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// No connection gets such a port by itself: a test's server finds it free when it is started again.
func TestAFreePortIsNoneThatConnectionsGet(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip("only Linux says which ports connections get:", err)
	}
	first, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	if first <= lastFreePort {
		t.Skipf("this system gives connections the ports from %d, which its administrator chose", first)
	}
	for range 100 {
		if port, err := FreePort(); err != nil || port >= first {
			t.Fatalf("port %d (%v): connections get those from %d", port, err, first)
		}
	}
}

// A port is its process's own, also while nobody listens there.
func TestAFreePortIsTakenOnce(t *testing.T) {
	dir := t.TempDir()
	addresses, err := FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	address := addresses[0]
	_, text, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	for i, want := range []bool{true, false} {
		if taken, err := takePort(dir, port); taken != want || err != nil {
			t.Errorf("taken for the %d. time: %v, %v", i+1, taken, err)
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if taken, err := takePort(t.TempDir(), port); taken || err != nil {
		t.Errorf("taken while somebody listens there: %v, %v", taken, err)
	}
}
