package proctest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The ports of FreePort are below those that systems give to connections by themselves: 32768 to
// 60999 on Linux (ip_local_port_range, ip(7)), 49152 to 65535 elsewhere (RFC 6335, section 6). One
// of those goes to anybody's connection while the server that a test has stopped does not listen on
// it.
const (
	firstFreePort = 10_000
	lastFreePort  = 32_767
)

// FreePort returns a port of the loopback address on which nobody listens. It stays this process's
// own until the process ends, so that what a test starts there may be stopped and started again:
// other processes that ask for a port get another.
func FreePort() (int, error) {
	// Each user has a directory of their own: nobody may lock another's files.
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("weir-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	const tries = 100
	for range tries {
		port := firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)
		switch taken, err := takePort(dir, port); {
		case err != nil:
			return 0, err
		case taken:
			return port, nil
		}
	}
	return 0, fmt.Errorf("%d ports between %d and %d were tried, and all are in use", tries, firstFreePort, lastFreePort)
}

// FreeAddresses returns n addresses of this machine with ports of FreePort.
func FreeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	return addresses, nil
}

// takePort locks the file of a port, unless a process has locked it, or listens on the port.
func takePort(dir string, port int) (bool, error) {
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return false, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil { // somebody else listens there
		return false, lock.Close()
	}
	ports.Store(port, lock)
	return true, l.Close()
}

// ports keeps the locked files from being collected, and so closed.
var ports sync.Map
