package sim_test

import (
	"bytes"
	"context"
	"flag"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	mutants = flag.Bool("mutants", false, "instead, put former faults back, one after the other, see that histories find them, and print a table")
	some    = flag.String("mutant", "", "as -mutants, but only those with this text in their name")
)

// mutantMax is how long a mutant may stay unfound.
const mutantMax = 5 * time.Minute

// found are the mutants of internal/chaos that histories find, by their names there, and on which
// store. Those of S3 need copies that are put back.
var found = []struct{ store, name string }{
	{"memory", "batches are kept in memory although another process wrote in between"},
	{"memory", "a claim is told before it is stored"},
	{"memory", "a queue's state is put without a check of its version"},
	{"memory", "a redrive appends the message, and takes the letter in another entry"},
	{"memory", "a stream is appended to without a check of its version"},
	{"memory", "a conflict rests on a version from memory"},
	{"memory", "the events of a deleted stream come back where it is begun again"},
	{"memory", "a boundary of tags is read and not checked"},
	{"memory", "a snapshot from before a deletion is loaded"},
	{"memory", "an archived stream takes appends"},
	{"memory", "a process reads on with the key of a subject that another process has forgotten"},
	{"memory", "the checkpoint of a projection is saved before the handler's commit"},
	{"s3", "a void commit is removed by its writer, and its number is used again"},
	{"s3", "nobody knows that a commit beyond a gap is void"},
	{"s3", "nobody knows that a commit beyond a gap is void, though later ones show it"},
	{"s3", "a process does not mark its own void commits"},
	{"s3", "a snapshot of a lost timeline counts"},
	{"s3", "a commit that is put again has the same bytes"},
	{"shards", "a leader epoch begins on shards that have lost nothing"},
	{"shards", "the half copy of a partition that moves is taken for a loss"},
	{"shards", "a topic is deleted while one of its shards is lost, and its partition there takes records"},
}

var (
	brokenSeed = regexp.MustCompile(`seed (\d+) broke (\S+) after (\d+) histories`)
	stuckSeed  = regexp.MustCompile(`seed \d+ does not end`)
	lastSeed   = regexp.MustCompile(`history of seed (\d+)`)
)

// TestMutants puts faults back into copies of the repository, one by one, and runs histories there
// until one breaks something.
func TestMutants(t *testing.T) {
	if !*mutants && *some == "" {
		t.Skip("only with -mutants")
	}
	chaos := filepath.Join(t.TempDir(), "chaos")
	mustRun(t, "../..", "go", "build", "-o", chaos, "./internal/chaos")
	t.Logf("%14s  %6s  %9s  %7s  %-7s  %s", "seed", "broke", "histories", "seconds", "store", "mutant")
	for _, m := range found {
		if !strings.Contains(m.name, *some) {
			continue
		}
		dir := t.TempDir()
		program := filepath.Join(dir, "sim.test")
		mustRun(t, "../..", chaos, "-mutant", m.name, "-into", dir)
		mustRun(t, dir, "go", "test", "-c", "-o", program, "./internal/sim")
		begin := time.Now()
		within, cancel := context.WithTimeout(t.Context(), mutantMax+time.Minute)
		run := exec.CommandContext(within, program, "-test.v", "-test.run", "^TestHistories$", "-first", "-store", m.store, "-for", mutantMax.String(), "-put-backs="+strconv.FormatBool(m.store == "s3"))
		run.Dir = filepath.Join(dir, "internal/sim")
		said, err := run.CombinedOutput()
		cancel()
		took := time.Since(begin).Seconds()
		seeds := lastSeed.FindAllSubmatch(said, -1)
		broke := brokenSeed.FindSubmatch(said)
		switch {
		case broke != nil:
		case bytes.Contains(said, []byte("panic: ")) && len(seeds) > 0:
			how := "panic"
			if stuckSeed.Match(said) {
				how = "no end"
			}
			broke = [][]byte{nil, seeds[len(seeds)-1][1], []byte(how), strconv.AppendInt(nil, int64(len(seeds)), 10)}
		default:
			t.Errorf("%14s  %6s  %9s  %7.0f  %-7s  %s (%v)\n%s", "", "NOTHING", "", took, m.store, m.name, err, said[max(0, len(said)-2000):])
			continue
		}
		t.Logf("%14s  %6s  %9s  %7.0f  %-7s  %s", broke[1], broke[2], broke[3], took, m.store, m.name)
	}
}

func mustRun(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), name, args...)
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
