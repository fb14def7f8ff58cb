// Package meter measures what processes use: processor time and memory, from /proc.
package meter

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Use is what a set of processes and their children used.
type Use struct {
	CPU  time.Duration `json:"cpu_ns"`
	RSS  int64         `json:"rss_bytes"`  // proportional where the kernel says so: shared pages count once
	Disk int64         `json:"disk_bytes"` // written to storage, by those that still run
}

// Sub returns what was used since before; memory is what is used now.
func (u Use) Sub(before Use) Use {
	return Use{CPU: u.CPU - before.CPU, RSS: u.RSS, Disk: u.Disk - before.Disk}
}

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Tree measures processes and all their descendants. Processes that are gone count as nothing.
func Tree(roots ...int) (u Use) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if f, ok := fields(pid); ok {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], pid)
		}
	}
	seen := map[int]bool{}
	var visit func(pid int)
	visit = func(pid int) {
		if seen[pid] {
			return
		}
		seen[pid] = true
		u.add(pid)
		for _, c := range children[pid] {
			visit(c)
		}
	}
	for _, r := range roots {
		visit(r)
	}
	return u
}

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
