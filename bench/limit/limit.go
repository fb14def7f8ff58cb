// Package limit measures what the machine can do, so that each figure can be seen beside it.
package limit

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Limits are medians of a short measurement.
type Limits struct {
	Flush4K  time.Duration `json:"flush_4k_ns"` // to write 4 KiB and flush it
	Flush1M  time.Duration `json:"flush_1m_ns"` // to write 1 MiB and flush it
	Loopback time.Duration `json:"loopback_ns"` // a round trip of 64 bytes over TCP
	Copy     float64       `json:"copy_mib_s"`  // MiB a second of copying in memory
}

const (
	flushes = 50
	trips   = 500
)

// What Measure does to the disk, at least.
const (
	Writes = 2 * flushes // each is flushed before the next
	Bytes  = 2 * flushes * (4<<10 + 1<<20)
)

// Measure takes about two seconds on a disk that flushes in a millisecond.
func Measure(dir string) (l Limits, err error) {
	f, err := os.Create(filepath.Join(dir, "limit"))
	if err != nil {
		return l, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if l.Flush4K, err = flush(f, 4<<10); err != nil {
		return l, err
	}
	if l.Flush1M, err = flush(f, 1<<20); err != nil {
		return l, err
	}
	if l.Loopback, err = loopback(); err != nil {
		return l, err
	}
	from, to := make([]byte, 64<<20), make([]byte, 64<<20)
	copy(to, from) // the pages are there
	began := time.Now()
	copy(to, from)
	l.Copy = float64(len(from)>>20) / time.Since(began).Seconds()
	return l, nil
}

func flush(f *os.File, size int) (time.Duration, error) {
	block := make([]byte, size)
	for i := range flushes { // the file has its size, so that a flush need not record another one
		if _, err := f.WriteAt(block, int64(i*size)); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	var took []time.Duration
	for i := range flushes {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i*size)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return median(took), nil
}

func loopback() (time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	echoed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(c, c)
			err = errors.Join(err, c.Close())
		}
		echoed <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	message := make([]byte, 64)
	var took []time.Duration
	for range trips {
		began := time.Now()
		if _, err := c.Write(message); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, message); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return median(took), errors.Join(c.Close(), <-echoed)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// Differ reports whether two measurements differ by more than a quarter in something that matters:
// then the machine was not the same before and after.
func (l Limits) Differ(other Limits) bool {
	far := func(a, b float64) bool { return a > 0 && b > 0 && (a/b > 1.25 || b/a > 1.25) }
	return far(float64(l.Flush4K), float64(other.Flush4K)) || far(float64(l.Flush1M), float64(other.Flush1M)) || far(float64(l.Loopback), float64(other.Loopback))
}
