package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/seed"
)

// mutant breaks one promise by hand: in a copy of the repository, texts take the place of others. A
// run must find it out.
type mutant struct {
	name  string
	finds []string // the invariants of which one is broken
	store string   // where; "": SQLite
	edits []edit
	calm  bool   // it is found where nobody acts and nothing happens
	test  string // it is found by this test of the store's package: a random test of many histories, or one that makes the history by hand
	real  string // it is found by histories in real time with these arguments, too; "": only by the test
}

type edit struct{ file, old, new string }

// checksKey is the line that has an entry check the key that it puts. Only streams have keys that
// are Holdable.
const checksKey = "\te.Checks = slices.Insert(e.Checks, 0, eventlog.Check{Key: w.rules.Key, Version: w.version, Holdable: w.rules.Holdable})\n"

// putBacks is the random test of a bucket that is put back under processes that write.
const putBacks = "TestPutBacksUnderProcessesThatWrite"

// What histories of mutants in real time have.
const (
	onS3     = "-only put-backs -length 2m"
	onShards = "-faults part,remake,move,kill -length 2m"
)

// mutants are faults that weir has had, and breaches that its own tests once let pass. Each is put
// back, and found.
var mutants = []mutant{
	{
		name: "batches are kept in memory although another process wrote in between", finds: []string{"L5"},
		edits: []edit{{"eventlog/tail.go", "t.drop(l, len(l.batches)) // another process appended in between: cached batches must be contiguous", "_ = l"}},
	},
	{
		name: "events with old timestamps are dropped as soon as their partition is seen", finds: []string{"L1", "L5", "L9"},
		edits: []edit{{"eventlog/retention.go", "last = now\n", "_ = last\n"}},
	},
	{
		name: "no second look after starting to watch", finds: []string{"L7"},
		edits: []edit{
			{"eventlog/fetch.go", "for waits := true; ; {", "for waits, again := true, false; ; again = true {"},
			{"eventlog/fetch.go", "if !waits || !counted || n >= max(int64(w.MinBytes), 1) {", "if again && (!waits || !counted || n >= max(int64(w.MinBytes), 1)) {"},
		},
	},
	{
		name: "a topic asked for by its id is deleted by its name", finds: []string{"L10"},
		edits: []edit{{"door/kafka/20_delete_topics.go", "doomed, of = append(doomed, t.topic)", "doomed, of = append(doomed, eventlog.Topic{Name: t.topic.Name})"}},
	},
	{
		name: "a waiter on a deleted partition is not woken", finds: []string{"L7"},
		edits: []edit{{"eventlog/tail.go", "if isDeleted(p) {\n\t\t\tt.wake(p)\n", "if isDeleted(p) {\n\t\t\tdelete(t.waiters, p)\n"}},
	},
	{
		name: "a commit in a transaction names the topic, and may meet its namesake", finds: []string{"G1", "G6"}, store: "postgres",
		edits: []edit{
			{"sql/commit_offset.sql", "weir.commit_offset_by_id($1::text, $2::uuid,", "weir.commit_offset($1::text, $2::text,"},
			{"tx.go", "commitOffset, c.Group, c.Topic.String(),", "commitOffset, c.Group, e.Topic,"},
			{"door/sqlfn/sql/functions/commit_position.sql", "IF at.place IS NULL AND from_offset > held.first_offset THEN", "IF false THEN"},
			{"door/sqlfn/sql/functions/commit_position.sql", "ELSIF next_offset > held.next_offset THEN", "ELSIF false THEN"},
		},
	},
	{
		name: "whoever looks at a group takes it over, and its coordinator does not hear of it", finds: []string{"G8"},
		edits: []edit{
			{
				"use/group/own.go",
				"\t\t\tg.unlock()\n\t\t\treturn nil, err\n\t\t}\n\t}\n\treturn g, nil\n",
				"\t\t\tg.unlock()\n\t\t\treturn nil, err\n\t\t}\n\t\tif !g.peers {\n\t\t\tif err := g.own(ctx); err != nil {\n\t\t\t\tg.unlock()\n\t\t\t\treturn nil, err\n\t\t\t}\n\t\t}\n\t}\n\treturn g, nil\n",
			},
			{"use/group/own.go", "if !due(g.renewBy, now) {", "if g.renewBy = now.Add(time.Hour); true {"},
		},
	},
	{
		name: "a claim is told before it is stored", finds: []string{"Q2", "Q3", "Q4"},
		edits: []edit{{
			"use/queue/claim.go",
			"if err := t.q.change(ctx, p, o); err != nil {\n",
			"var err error\n\tif s := t.q.shard(p); s.known() != nil {\n\t\tnext := s.known().Clone()\n\t\tif _, err = o.apply(next, &change{}); err == nil {\n\t\t\t_ = s.Learn(1, func() (*claims.State, bool, error) { return next, true, nil })\n\t\t}\n\t}\n\tif err != nil {\n",
		}},
	},
	{
		name: "leases end by the clock of the process that claims, and one is wrong", finds: []string{"Q2", "Q3", "Q4"},
		edits: []edit{
			{"use/claims/clock.go", "\t\"fmt\"\n", "\t\"fmt\"\n\t\"os\"\n"},
			{
				"use/claims/clock.go",
				"now := time.Now()\n\treturn c.read + Time(now.Sub(c.told).Milliseconds()), c.most + Time(now.Sub(c.asked).Milliseconds()) + 1, nil\n",
				"now := Time(time.Now().UnixMilli() + int64(os.Getpid()%2)*60_000)\n\treturn now, now + 1, nil\n",
			},
		},
	},
	{
		name: "a queue's state is put without a check of its version", finds: []string{"Q2", "Q3", "Q4"},
		edits: []edit{{
			"use/ledger/work.go", checksKey, "if w.rules.Holdable {\n" + checksKey + "}\n",
		}},
	},
	{
		name: "a redrive appends the message, and takes the letter in another entry", finds: []string{"QR", "Q1"},
		edits: []edit{
			{"use/queue/redrive.go", "e.Put(l.offset, claims.Run{Fate: claims.Done})\n", "if !back {\n\t\t\t\t\te.Put(l.offset, claims.Run{Fate: claims.Done})\n\t\t\t\t}\n"},
			{
				"use/queue/redrive.go",
				"return e.Apply(), nil\n\t\t}})\n",
				"return e.Apply() || back, nil\n\t\t}})\n\t\tif err == nil && back {\n\t\t\tchanged, err = q.takeLetters(ctx, some, false)\n\t\t}\n",
			},
		},
	},
	{
		name: "a page of a queue's messages begins after the first one that the page before had no room for", finds: []string{"QB"},
		edits: []edit{{"use/queue/browse.go", "w.page.Next = MessageID{in.partition, o}\n", "w.page.Next = MessageID{in.partition, o + 1}\n"}},
	},
	{
		name: "an ack in a transaction takes a stale receipt", finds: []string{"QA", "Q2"}, store: "postgres",
		edits: []edit{{"door/sqlfn/sql/functions/end_claim.sql", "PERFORM weir.check_claimed(fields);", "NULL;"}},
	},
	{
		name: "a stream is appended to without a check of its version", finds: []string{"S1", "S2"},
		edits: []edit{{
			"use/ledger/work.go", checksKey, "if !w.rules.Holdable {\n" + checksKey + "}\n",
		}},
	},
	{
		name: "a conflict rests on a version from memory", finds: []string{"S1"},
		edits: []edit{{"use/stream/writer.go", "bool { return !o.Proven })", "bool { return false })"}},
	},
	{
		name: "If-Match is read and not obeyed", finds: []string{"S1", "S2"},
		edits: []edit{{"door/httpapi/expected.go", "return stream.Expected(n), nil", "return stream.Any, nil"}},
	},
	{
		name: "the events of a deleted stream come back where it is begun again", finds: []string{"S7"},
		edits: []edit{{"use/stream/writer.go", "h.First, h.Born, h.Deleted, h.Archived = h.Next, h.Next, true, false", "h.Born, h.Deleted, h.Archived = h.Next, true, false"}},
	},
	{
		name: "a boundary of tags is read and not checked", finds: []string{"S12"},
		edits: []edit{{"use/stream/writer.go", "!w.c.allows(first.Do.within, k.tags) {", "!w.c.allows(first.Do.within, k.tags) && first.Do.stream == \"\" {"}},
	},
	{
		name: "a snapshot from before a deletion is loaded", finds: []string{"S9"},
		edits: []edit{{"use/stream/snapshot.go", "return version > h.Born && version >= h.First", "return version > 0"}},
	},
	{
		name: "an archived stream takes appends", finds: []string{"S10"},
		edits: []edit{{"use/stream/writer.go", "(o.alone() || !h.Archived)", "(o.alone() || !h.Archived || h.Next > 0)"}},
	},
	{
		name: "a process reads on with the key of a subject that another process has forgotten", finds: []string{"S11"},
		edits: []edit{{"use/stream/subject.go", "keys, err := c.owner.readKeys(ctx, names)", "keys, err := c.owner.keysFor(ctx, names, false)"}},
	},
	{
		name: "the checkpoint of a projection is saved before the handler's commit", finds: []string{"S8"},
		edits: []edit{{"use/deliver/partition.go", "\t\t\terr := p.call(ctx, wait, events)\n", "\t\t\tp.advance(events[len(events)-1].at() + 1)\n\t\t\terr := p.call(ctx, wait, events)\n"}},
	},
	{
		name: "a batch's checksum is not checked", finds: []string{"D2"}, calm: true,
		edits: []edit{{"eventlog/batch/header.go", "castagnoli); got != want {", "castagnoli); got != want && got == 0 {"}},
	},
	{
		name: "a file that took the store's place is not noticed", finds: []string{"D3"}, calm: true,
		edits: []edit{{"store/sqlite/incarnation.go", "return !os.SameFile(now, s.identity.file), nil", "return now == nil, nil"}},
	},
	{
		name: "a void commit is removed by its writer, and its number is used again", test: putBacks, real: onS3, store: "s3",
		edits: []edit{{"store/s3/commit.go", "case err == nil:\n\t\t\ts.maybe(done)\n", "case err == nil:\n\t\t\t_ = s.bucket.remove(ctx, commitKey(done.number))\n"}},
	},
	{
		name: "nobody knows that a commit beyond a gap is void", test: "TestACommitBeyondAGapIsVoidIfItIsMarked", real: onS3, store: "s3",
		edits: []edit{{"store/s3/void.go", "return len(found) > 0 && found[0].key == key, err", "return len(found) > 0 && err != nil, err"}},
	},
	{
		name: "nobody knows that a commit beyond a gap is void, though later ones show it", test: putBacks, real: onS3, store: "s3",
		edits: []edit{
			{"store/s3/void.go", "if number > s.st.number && s.st.time > at {", "if number > s.st.number && s.st.time > at && false {"},
			{"store/s3/void.go", "return len(found) > 0 && found[0].key == key, err", "return len(found) > 0 && err != nil, err"},
		},
	},
	{
		name: "a process does not mark its own void commits", test: "TestAProcessMarksItsVoidCommits", real: onS3, store: "s3",
		edits: []edit{{"store/s3/void.go", "\tsent := s.sent\n", "\tsent := s.sent[:0]\n"}},
	},
	{
		name: "a snapshot of a lost timeline counts", test: putBacks, real: onS3, store: "s3",
		edits: []edit{{"store/s3/snapshot.go", "return o, same, err\n", "return o, same || err == nil, err\n"}},
	},
	{
		name: "a commit that is put again has the same bytes", test: putBacks, store: "s3",
		edits: []edit{{"store/s3/commit.go", "c.nonce = random()\n", "if attempt == 0 {\n\t\t\tc.nonce = random()\n\t\t}\n"}},
	},
	{
		name: "a leader epoch begins on shards that have lost nothing", test: "TestAnEpochBeginsOnlyWhereSomethingMayBeLost", real: onShards, store: "shards",
		edits: []edit{{"eventlog/shards.go", "return !sharded.Unheard(p) && (lost[sharded.ShardWith(p)] || !sharded.Intact(p, since))", "return len(lost) > 0"}},
	},
	{
		name: "the half copy of a partition that moves is taken for a loss", test: "TestAHalfCopyIsNotTakenForALoss", real: onShards, store: "shards",
		edits: []edit{
			{"store/shard/member.go", "return len(before.owned(m, []eventlog.Bounds{b})) == 0", "return before == nil"},
			{"eventlog/incarnation.go", "l.tail.rewound(l.heard(bounds))", "l.tail.rewound(bounds)"},
		},
	},
	{
		name: "a topic is deleted while one of its shards is lost, and its partition there takes records", test: "TestADeletedTopicTakesNoRecords", real: onShards, store: "shards",
		edits: []edit{
			{"eventlog/shards.go", "return t, nil, l.shardsAnswer(ctx, sharded, t)", "return t, nil, nil"},
			{"store/shard/commit.go", "if err := m.prepares(ctx, \"deleted\", own); err != nil {", "if err := m.prepares(ctx, \"deleted\", own); err != nil && !isLoss(err) {"},
		},
	},
	{
		name: "a key for some topics is good for all", finds: []string{"M1"}, calm: true,
		edits: []edit{{"use/apikey/key.go", `prefix != "" && strings.HasPrefix(name, prefix)`, `prefix != "" && (strings.HasPrefix(name, prefix) || true)`}},
	},
}

// mutantHistories is how many histories the random test of a mutant runs.
const mutantHistories = 3000

// mutantMax is how long a mutant may stay unfound.
const mutantMax = 10 * time.Minute

var brokenLine = regexp.MustCompile(`(?m)^BROKEN (\S+) `)

// failedHistory finds the seed of a history that failed, in what a random test says.
var failedHistory = regexp.MustCompile(`--- FAIL: \w+/(\d+) `)

// findMutants runs each mutant whose name has the text in it until it is found out, and prints a
// table as it goes. real: those that a test finds are looked for by histories in real time instead.
func findMutants(ctx context.Context, text string, real bool) error {
	missed := 0
	fmt.Printf("%10s  %7s  %-7s  %-8s  %s\n", "seed", "seconds", "broke", "store", "mutant")
	for _, m := range mutants {
		if !strings.Contains(m.name, text) || real && m.real == "" {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		seed := rand.Uint64() >> 32
		broke, seed, took, err := m.find(ctx, seed, real)
		fmt.Printf("%10d  %7.0f  %-7s  %-8s  %s\n", seed, took.Seconds(), cmp.Or(broke, "NOTHING"), cmp.Or(m.store, "sqlite"), m.name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", m.name, err)
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d mutants were not found", missed)
	}
	return nil
}

// makeMutant puts the fault of this name into a copy of the repository.
func makeMutant(ctx context.Context, name, dir string) error {
	i := slices.IndexFunc(mutants, func(m mutant) bool { return m.name == name })
	if i < 0 {
		return fmt.Errorf("there is no mutant %q", name)
	}
	return mutants[i].copyTo(ctx, dir)
}

// find puts the fault into a copy of the repository and runs a seed there, or the mutant's test, or
// histories in real time. It returns which invariant was broken, and how long that took with the
// start of the run; for a random test and for histories, the seed of the one that failed.
func (m mutant) find(ctx context.Context, seed uint64, real bool) (broke string, with uint64, took time.Duration, err error) {
	dir, err := os.MkdirTemp("", "weir-chaos-mutant-")
	if err != nil {
		return "", seed, 0, err
	}
	defer os.RemoveAll(dir)
	if err := m.copyTo(ctx, dir); err != nil {
		return "", seed, 0, err
	}
	if m.test != "" && !real {
		return m.findByTest(ctx, dir)
	}
	programs := []string{"chaos"}
	if real {
		programs = append(programs, "weir") // once for all histories
	}
	for _, name := range programs {
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, name), map[string]string{"chaos": "./internal/chaos", "weir": "./cmd/weir"}[name])
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			return "", seed, 0, fmt.Errorf("it does not build: %w: %s", err, out)
		}
	}
	if real {
		return m.findByHistories(ctx, dir)
	}
	begin := time.Now()
	args := []string{"-length", mutantMax.String(), "-until", strings.Join(m.finds, ",")}
	if m.calm {
		args = append(args, "-length", "1s", "-faults", "none", "-only", "none")
	}
	said := m.runIn(ctx, dir, seed, args)
	took = time.Since(begin)
	for _, found := range brokenLine.FindAllStringSubmatch(said, -1) {
		if slices.Contains(m.finds, found[1]) {
			return found[1], seed, took, nil
		}
	}
	return "", seed, took, fmt.Errorf("nothing of %v was broken in %v; it said:\n%s", m.finds, took.Round(time.Second), said)
}

// runIn runs one seed with the program in a directory, and returns what it says.
func (m mutant) runIn(ctx context.Context, dir string, seed uint64, args []string) string {
	run := exec.CommandContext(ctx, filepath.Join(dir, "chaos"), append([]string{"-store", cmp.Or(m.store, "sqlite"), "-seed", strconv.FormatUint(seed, 10)}, args...)...)
	run.Dir = dir
	said, _ := run.CombinedOutput() // it fails when it has found something
	return string(said)
}

// findByHistories runs seeds in a row until one breaks something.
func (m mutant) findByHistories(ctx context.Context, dir string) (broke string, with uint64, took time.Duration, err error) {
	begin := time.Now()
	for took < mutantMax && ctx.Err() == nil {
		with = rand.Uint64() >> 32
		said := m.runIn(ctx, dir, with, append(strings.Fields(m.real), "-weir", filepath.Join(dir, "weir")))
		took = time.Since(begin)
		if found := brokenLine.FindStringSubmatchIndex(said); found != nil {
			fmt.Println(tellingOf(said[found[0]:]))
			return said[found[2]:found[3]], with, took, nil
		}
		if !strings.Contains(said, "broke nothing") {
			return "", with, took, fmt.Errorf("a run failed; it said:\n%s", said)
		}
	}
	return "", with, took, fmt.Errorf("no history with %s broke anything in %v", m.real, took.Round(time.Second))
}

// tellingOf returns the first lines of a text, which tell what was broken.
func tellingOf(text string) string {
	lines := strings.SplitN(text, "\n", 3)
	return strings.Join(lines[:min(2, len(lines))], "\n")
}

// testIn is the package of the tests of mutants, by the store.
var testIn = map[string]string{"s3": "./store/s3", "shards": "./store/shard"}

// findByTest runs the mutant's test in a directory. It says that the test's claim was broken, and
// with which seed, if the test has any.
func (m mutant) findByTest(ctx context.Context, dir string) (broke string, with uint64, took time.Duration, err error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, mutantMax)
	defer cancel()
	run := exec.CommandContext(ctx, "go", "test", "-failfast", "-run", "^"+m.test+"$", testIn[m.store])
	run.Dir = dir
	run.Env = append(os.Environ(), seed.Seeds+"="+strconv.Itoa(mutantHistories))
	said, err := run.CombinedOutput()
	took = time.Since(begin)
	if err != nil && bytes.Contains(said, []byte("--- FAIL: "+m.test)) {
		if failed := failedHistory.FindSubmatch(said); failed != nil {
			with, _ = strconv.ParseUint(string(failed[1]), 10, 64)
		}
		return m.test, with, took, nil
	}
	return "", 0, took, fmt.Errorf("%s did not fail (%w); it said:\n%s", m.test, err, said)
}

// copyTo copies what git knows of, as it is, and puts the fault in.
func (m mutant) copyTo(ctx context.Context, dir string) error {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("list the repository's files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if err := copyFile(name, filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	changed, err := m.applied(dir)
	if err != nil {
		return err
	}
	for path, text := range changed {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// applied returns the files that the mutant changes, as they are with the fault. Each text that it
// replaces is there once.
func (m mutant) applied(dir string) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, e := range m.edits {
		path := filepath.Join(dir, e.file)
		text, is := changed[path]
		if !is {
			var err error
			if text, err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return nil, fmt.Errorf("%s has %q %d times: bring the mutant up to date in internal/chaos/mutants.go", e.file, e.old, n)
		}
		changed[path] = bytes.Replace(text, []byte(e.old), []byte(e.new), 1)
	}
	return changed, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, in)
	return err
}
