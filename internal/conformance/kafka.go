package main

import (
	"archive/zip"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/internal/pgtest"
)

// kafkaModule is a module of Kafka's own integration tests, whose classes Kafka publishes.
type kafkaModule struct {
	flag     string // which runs it
	artifact string
	document string
	title    string // of the document
	of       string // what it tests
	class    string // one of its classes
	method   string // one of that class
	note     string // in the document
}

var kafkaClients = &kafkaModule{
	flag: "--kafka", artifact: "kafka-clients-integration-tests", document: "docs/conformance-kafka.md",
	title: "Kafka's own integration tests", of: "Kafka's clients",
	class: "PlaintextConsumerPollTest", method: "testMaxPollRecords",
	note: "A test that Kafka runs twice, with its controllers inside its brokers and beside them, runs once: weir has no controllers.",
}

var kafkaStreams = &kafkaModule{
	flag: "--streams", artifact: "kafka-streams-integration-tests", document: "docs/conformance-streams.md",
	title: "Kafka Streams' own integration tests", of: "Kafka Streams",
	class: "GlobalKTableIntegrationTest", method: "shouldKStreamGlobalKTableJoin",
	note: "A case whose arguments ask for exactly-once or for `group.protocol=streams` is not run; the same case with other arguments is. " +
		"All classes take more than an hour: with `--results DIR` a run goes on where the last one ended.",
}

// kafkaSuite is a module of Kafka's tests, and our classes that give them clusters of weir.
type kafkaSuite struct {
	*kafkaModule
	scratch, dir string
	version      string   // of Kafka
	classes      []string // of tests, without the package that all share
}

const (
	kafkaSources = "internal/conformance/kafka"
	kafkaPackage = "org.apache.kafka."
	caseMax      = 3 * time.Minute // time limit of one case, unless the test has its own
)

// fetchKafkaSuite lets Maven fetch Kafka's tests, and compiles our classes.
func fetchKafkaSuite(ctx context.Context, module *kafkaModule, scratch string) (*kafkaSuite, error) {
	s := &kafkaSuite{kafkaModule: module, scratch: scratch, dir: filepath.Join(scratch, "kafka")}
	if err := os.CopyFS(s.dir, os.DirFS(kafkaSources)); err != nil {
		return nil, fmt.Errorf("copy %s: %w", kafkaSources, err)
	}
	if err := command(ctx, "mvn", "-q", "-B", "-f", filepath.Join(s.dir, "pom.xml"), "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(s.dir, "lib")); err != nil {
		return nil, err
	}
	var sources []string
	err := filepath.WalkDir(s.javaDir(), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".java") {
			sources = append(sources, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := command(ctx, "javac", append([]string{"-nowarn", "-cp", filepath.Join(s.dir, "lib", "*"), "-d", s.classDir()}, sources...)...); err != nil {
		return nil, err
	}
	return s, s.list()
}

func (s *kafkaSuite) javaDir() string  { return filepath.Join(s.dir, "java") }
func (s *kafkaSuite) classDir() string { return filepath.Join(s.dir, "classes") }

// classPath has our classes before those whose place they take, and the list of JUnit's extensions.
func (s *kafkaSuite) classPath() string {
	return strings.Join([]string{s.classDir(), s.javaDir(), filepath.Join(s.dir, "lib", "*")}, ":")
}

// testClass matches the names of classes of tests, and of a few that have no case.
var testClass = regexp.MustCompile(`\.([^.A]|A[^b])[\w$]*Test(ImplicitSerdes)?$`)

// list finds the classes of tests in the jar, and its version.
func (s *kafkaSuite) list() error {
	before, after := filepath.Join(s.dir, "lib", s.artifact+"-"), "-test.jar"
	jars, err := filepath.Glob(before + "*" + after)
	if err != nil || len(jars) != 1 {
		return fmt.Errorf("look for %s: there are %d jars of them; %w", s.artifact, len(jars), err)
	}
	s.version = strings.TrimSuffix(strings.TrimPrefix(jars[0], before), after)
	jar, err := zip.OpenReader(jars[0])
	if err != nil {
		return err
	}
	defer jar.Close()
	for _, file := range jar.File {
		if name, ok := strings.CutSuffix(strings.ReplaceAll(file.Name, "/", "."), ".class"); ok && testClass.MatchString(name) {
			s.classes = append(s.classes, strings.TrimPrefix(name, kafkaPackage))
		}
	}
	slices.Sort(s.classes)
	return nil
}

// kafkaClass is what became of one class.
type kafkaClass struct {
	Commit string // of weir
	Took   time.Duration
	Cases  []kafkaCase // by name
}

// kafkaCase is what became of one case.
type kafkaCase struct {
	Name   string // the method, its number when it has several cases, and what sets them apart
	Result verdict
	Reason string // why it failed, or did not run
	Took   time.Duration
}

// The verdicts that only cases of Kafka's tests have.
const (
	internals verdict = "internals" // it looks at what is inside a broker of Kafka, or asks for a setting that weir does not have
	disabled  verdict = "disabled"  // by Kafka itself
	notRun    verdict = "not run"
)

// renumber numbers the cases of each method from 1, and leaves the number out where there is one
// case: Kafka's own numbers depend on the order of a set.
func renumber(cases []kafkaCase) {
	number := regexp.MustCompile(` \[\d+\]`)
	methods := map[string][]int{} // by method: which of cases
	for i, c := range cases {
		methods[c.method()] = append(methods[c.method()], i)
	}
	for _, of := range methods {
		for n, i := range of {
			with := ""
			if len(of) > 1 {
				with = fmt.Sprintf(" [%d]", n+1)
			}
			cases[i].Name = number.ReplaceAllString(cases[i].Name, with)
		}
	}
}

// kafkaResult is one run, with what earlier ones have left in the directory of results.
type kafkaResult struct {
	*kafkaModule
	version string // of Kafka
	mu      sync.Mutex
	classes map[string]*kafkaClass // nil: one that was not run yet
}

// runKafka runs the classes that o.run matches, or one method of one: CLASS#METHOD.
func runKafka(ctx context.Context, o options, scratch string) (*kafkaResult, error) {
	class, method, _ := strings.Cut(o.run, "#")
	wanted, err := regexp.Compile(class)
	if err != nil {
		return nil, fmt.Errorf("--run %s: %w", o.run, err)
	}
	s, err := fetchKafkaSuite(ctx, o.kafkaModule(), scratch)
	if err != nil {
		return nil, err
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return nil, fmt.Errorf("git describe: %w", err)
	}
	weir := filepath.Join(scratch, "weir")
	if err := command(ctx, "go", "build", "-o", weir, "./cmd/weir"); err != nil {
		return nil, err
	}
	server, err := pgtest.Launch("")
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() { _ = server.Close() }() // a directory that stays behind changes no result
	if err := prepare(ctx, server); err != nil {
		return nil, fmt.Errorf("set PostgreSQL up: %w", err)
	}
	r := &kafkaResult{kafkaModule: s.kafkaModule, version: s.version, classes: map[string]*kafkaClass{}}
	var run []string
	for _, class := range s.classes {
		if r.classes[class], err = keptResult(o.results, class); err != nil {
			return nil, err
		}
		if need := kafkaNeeds[class]; need != "" {
			r.classes[class] = &kafkaClass{Cases: []kafkaCase{{Name: wholeClass, Result: notRun, Reason: need}}}
		} else if wanted.MatchString(class) && (o.run != "" || r.classes[class] == nil) {
			run = append(run, class)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.parallel)
	for _, class := range run {
		group.Go(func() error {
			began := time.Now()
			cases, err := s.runClass(ctx, o.timeout, weir, server.Admin(), class, method)
			if err != nil {
				return fmt.Errorf("%s: %w", class, err)
			}
			done := &kafkaClass{Commit: strings.TrimSpace(string(commit)), Took: time.Since(began).Round(time.Second), Cases: cases}
			r.mu.Lock()
			r.classes[class] = done
			r.mu.Unlock()
			if method != "" {
				return nil
			}
			return keepResult(o.results, class, done)
		})
	}
	return r, group.Wait()
}

// wholeClass is the name of the only case of a class that is not run.
const wholeClass = "all"

// keptResult returns what an earlier run left of a class in a directory, or nil.
func keptResult(dir, class string) (*kafkaClass, error) {
	if dir == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, class+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := &kafkaClass{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("read the result of %s in %s: %w", class, dir, err)
	}
	return c, nil
}

func keepResult(dir, class string, c *kafkaClass) error {
	if dir == "" {
		return nil
	}
	text, err := json.MarshalIndent(c, "", "\t")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, class+".json"), text, 0o644)
}

// prepare sets a server up for the connections of several clusters.
func prepare(ctx context.Context, server *pgtest.Server) error {
	conn, err := pgx.Connect(ctx, server.Admin())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER SYSTEM SET max_connections = 500")
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	return errors.Join(server.Crash(), server.Recover())
}

// runClass runs one class in a JVM of its own, for so long at most. Failing cases are a result; an
// error means that there is none.
func (s *kafkaSuite) runClass(ctx context.Context, most time.Duration, weir, postgres, class, method string) ([]kafkaCase, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	log, err := os.Create(filepath.Join(s.scratch, class+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c, err := listen(ctx, class, weir, postgres, s.scratch)
	if err != nil {
		return nil, err
	}
	name := kafkaPackage + class
	if method != "" {
		name += "#" + method
	}
	jvm := exec.CommandContext(ctx, "java", "-Xmx1g", fmt.Sprintf("-Dweir.control=%d", c.port()), "-cp", s.classPath(),
		"weir.Main", name, fmt.Sprintf("%d s", caseMax/time.Second))
	jvm.Stdout, jvm.Stderr = log, log
	ended := jvm.Run()
	cases, err := c.close()
	if err != nil {
		return nil, err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err() // the run was interrupted
	}
	if ended != nil {
		if _, err := fmt.Fprintln(log, "the JVM ended:", ended); err != nil {
			return nil, err
		}
		late := errors.Is(ctx.Err(), context.DeadlineExceeded)
		if len(cases) == 0 && !late {
			return nil, fmt.Errorf("run the class: %w; see %s", ended, log.Name())
		}
		if len(cases) == 0 {
			cases = []kafkaCase{{Name: simple(class), Result: unfinished}}
		}
		for i := range cases {
			if cases[i].Result == unfinished {
				cases[i].Reason = fmt.Sprintf("the JVM ended (%v), after %v at most; cases that are not listed did not run", ended, most)
			}
		}
	}
	slices.SortFunc(cases, func(a, b kafkaCase) int { return cmp.Compare(a.Name, b.Name) })
	renumber(cases)
	return cases, nil
}

// summarizeKafka prints the cases that did not pass and have no reason, and counts them.
func summarizeKafka(w io.Writer, r *kafkaResult) (bad int) {
	count := map[verdict]int{}
	for class, c := range r.ran() {
		for _, c := range c.Cases {
			count[c.Result]++
			if !c.asItShould(class) {
				bad++
				fmt.Fprintf(w, "%s: %s: %s: %s\n", class, c.Name, c.Result, c.Reason)
			}
		}
	}
	fmt.Fprintf(w, "Kafka %s: %d passed, %d failed, %d of a broker's internals, %d disabled by Kafka, %d skipped, %d unfinished, %d not run, in %v\n",
		r.version, count[passed], count[failed], count[internals], count[disabled], count[skips], count[unfinished], count[notRun], r.took())
	return bad
}

// ran yields the classes that have a result, by name. A class without cases is none of tests.
func (r *kafkaResult) ran() iter.Seq2[string, *kafkaClass] {
	return func(yield func(string, *kafkaClass) bool) {
		for _, class := range slices.Sorted(maps.Keys(r.classes)) {
			if c := r.classes[class]; c != nil && len(c.Cases) > 0 && !yield(class, c) {
				return
			}
		}
	}
}

// took is the time of all classes, one after the other.
func (r *kafkaResult) took() (all time.Duration) {
	for _, c := range r.ran() {
		all += c.Took
	}
	return all
}

// whole reports whether the class as a whole was not run, and why.
func (c *kafkaClass) whole() (why string, is bool) {
	if len(c.Cases) == 1 && c.Cases[0].Name == wholeClass && c.Cases[0].Result == notRun {
		return c.Cases[0].Reason, true
	}
	return "", false
}

// asItShould reports whether a case has the expected result: it passed, it is none that weir can
// have, it needs what weir does not have yet, or Kafka does not run it either.
func (c kafkaCase) asItShould(class string) bool {
	return c.Result == passed || c.Result == internals || c.Result == disabled || c.Result == notRun || c.need(class) != ""
}

// need returns what a case needs and weir does not have.
func (c kafkaCase) need(class string) string {
	return kafkaNeeds[class+"#"+c.method()]
}

func (c kafkaCase) method() string {
	method, _, _ := strings.Cut(c.Name, " ")
	return method
}
