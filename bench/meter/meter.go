// Package meter measures what processes use: processor time, memory and what they write, from
// /proc.
package meter

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Use is what processes used.
type Use struct {
	CPU  time.Duration `json:"cpu_ns"`
	RSS  int64         `json:"rss_bytes"`  // proportional where the kernel says so: shared pages count once
	Disk int64         `json:"disk_bytes"` // written to storage

	Hidden bool `json:"-"` // some of them do not show what they wrote
}

// Sub returns what was used since before; memory is what is used now.
func (u Use) Sub(before Use) Use {
	return Use{CPU: u.CPU - before.CPU, RSS: u.RSS, Disk: u.Disk - before.Disk, Hidden: u.Hidden || before.Hidden}
}

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 a second on every Linux that Go runs
// on.
const tick = 10 * time.Millisecond

// Self measures this process without its children.
func Self() (u Use) {
	u.add(os.Getpid(), false)
	return u
}

// Adopt makes this process the parent of what its children leave behind, so that Servers finds a
// server that puts itself in the background, as PostgreSQL's does (prctl(2),
// PR_SET_CHILD_SUBREAPER).
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Adopts reports whether it is.
func Adopts() bool {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is == 1
}

// DiskWrites is how many writes the disks of this machine have completed, from /proc/diskstats; 0:
// it does not say. Partitions, and devices that lie on others, would count a write again.
func DiskWrites() (all int64) {
	text, _ := os.ReadFile("/proc/diskstats")
	for line := range strings.Lines(string(text)) {
		const completed = 7 // after numbers, name and what was read
		if f := strings.Fields(line); len(f) > completed && isDisk(f[2]) {
			n, _ := strconv.ParseInt(f[completed], 10, 64)
			all += n
		}
	}
	return all
}

// isDisk reports whether a block device has hardware of its own below it.
func isDisk(name string) bool {
	_, err := os.Stat("/sys/block/" + name + "/device")
	return err == nil
}

// Servers measures the processes that this process started, those that they started, and so on.
// What ended meanwhile counts if its parent waited for it.
func Servers() (u Use) {
	children := make(map[int][]int)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f, ok := fields(pid); ok {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], pid)
		}
	}
	for line := slices.Clone(children[os.Getpid()]); len(line) > 0; line = line[1:] {
		u.add(line[0], true)
		line = append(line, children[line[0]]...)
	}
	return u
}

// add adds what a process used, and with its children what those used that it has waited for.
func (u *Use) add(pid int, children bool) {
	f, ok := fields(pid)
	if !ok {
		return
	}
	times := []int{11, 12} // utime, stime
	if children {
		times = append(times, 13, 14) // cutime, cstime
	}
	for _, i := range times {
		n, _ := strconv.ParseInt(f[i], 10, 64)
		u.CPU += time.Duration(n) * tick
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)); err == nil {
		u.RSS += kib(text, "Pss:")
	} else if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		u.RSS += kib(text, "VmRSS:")
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it has ended
		u.Hidden = true
	}
	if err == nil {
		for _, line := range strings.Split(string(text), "\n") {
			if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
				n, _ := strconv.ParseInt(rest, 10, 64)
				u.Disk += n
			}
		}
	}
}

// fields are those of /proc/PID/stat after the name of the program: state, parent and so on.
func fields(pid int) ([]string, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(text, ')')
	if err != nil || end < 0 {
		return nil, false
	}
	f := strings.Fields(string(text[end+1:]))
	return f, len(f) > 14
}

func kib(text []byte, name string) int64 {
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}
