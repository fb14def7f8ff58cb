package meter_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/meter"
)

// A server whose parent has gone is still found, and what it uses counts.
func TestAServerInTheBackgroundIsFound(t *testing.T) {
	if err := meter.Adopt(); err != nil {
		t.Skip(err)
	}
	// The shell ends. What it left behind uses the processor, says how much (in hundredths of a
	// second, proc(5)), and waits to be killed.
	cmd := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo $$ $(cut -d" " -f14 /proc/$$/stat); exec sleep 1000' & exit 0`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before := meter.Servers()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid, ticks int
	if _, err := fmt.Sscan(line, &pid, &ticks); err != nil || ticks == 0 {
		t.Fatalf("it said %q: %v", line, err)
	}
	used := meter.Servers().Sub(before)
	_ = exec.Command("kill", "-9", fmt.Sprint(pid)).Run()
	if told := time.Duration(ticks) * 10 * time.Millisecond; used.CPU < told || used.RSS == 0 {
		t.Errorf("a process says that it used the processor for %v, and %v and %d bytes were measured", told, used.CPU, used.RSS)
	}
}
