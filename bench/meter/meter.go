// Package meter measures what a process uses: processor time and memory, from /proc.
package meter

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Use is what a process used, without its children.
type Use struct {
	CPU  time.Duration `json:"cpu_ns"`
	RSS  int64         `json:"rss_bytes"`  // proportional where the kernel says so: shared pages count once
	Disk int64         `json:"disk_bytes"` // written to storage
}

// Sub returns what was used since before; memory is what is used now.
func (u Use) Sub(before Use) Use {
	return Use{CPU: u.CPU - before.CPU, RSS: u.RSS, Disk: u.Disk - before.Disk}
}

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Self measures this process without its children.
func Self() (u Use) {
	u.add(os.Getpid())
	return u
}

func (u *Use) add(pid int) {
	f, ok := fields(pid)
	if !ok {
		return
	}
	for _, i := range []int{11, 12} { // utime, stime
		n, _ := strconv.ParseInt(f[i], 10, 64)
		u.CPU += time.Duration(n) * tick
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)); err == nil {
		u.RSS += kib(text, "Pss:")
	} else if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		u.RSS += kib(text, "VmRSS:")
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)); err == nil {
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
	return f, len(f) > 12
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
