package main

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// kafkaSuite is Kafka's own integration tests, and our classes that give them clusters of weir.
type kafkaSuite struct {
	scratch, dir string
	version      string   // of Kafka
	classes      []string // of tests, without the package that all share
}

const (
	kafkaSources = "internal/conformance/kafka"
	kafkaPackage = "org.apache.kafka."
	caseMax      = 3 * time.Minute  // time limit of one case
	classMax     = 20 * time.Minute // time limit of all cases of a class
)

// fetchKafkaSuite lets Maven fetch Kafka's tests, and compiles our classes.
func fetchKafkaSuite(ctx context.Context, scratch string) (*kafkaSuite, error) {
	s := &kafkaSuite{scratch: scratch, dir: filepath.Join(scratch, "kafka")}
	if err := os.CopyFS(s.dir, os.DirFS(kafkaSources)); err != nil {
		return nil, fmt.Errorf("copy %s: %w", kafkaSources, err)
	}
	if err := command(ctx, "mvn", "-q", "-B", "-f", filepath.Join(s.dir, "pom.xml"), "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(s.dir, "lib")); err != nil {
		return nil, err
	}
	sources, err := filepath.Glob(filepath.Join(s.dir, "java", "weir", "*.java"))
	if err != nil {
		return nil, err
	}
	sources = append(sources, filepath.Join(s.dir, "java", "org", "apache", "kafka", "common", "test", "junit", "RaftClusterInvocationContext.java"))
	if err := command(ctx, "javac", append([]string{"-nowarn", "-cp", filepath.Join(s.dir, "lib", "*"), "-d", s.classDir()}, sources...)...); err != nil {
		return nil, err
	}
	return s, s.list()
}

func (s *kafkaSuite) classDir() string { return filepath.Join(s.dir, "classes") }

var testJar = regexp.MustCompile(`kafka-clients-integration-tests-(.+)-test\.jar$`)

// list finds the classes of tests in the jar, and its version.
func (s *kafkaSuite) list() error {
	jars, err := filepath.Glob(filepath.Join(s.dir, "lib", "kafka-clients-integration-tests-*-test.jar"))
	if err != nil || len(jars) != 1 {
		return fmt.Errorf("look for Kafka's integration tests: there are %d jars of them; %w", len(jars), err)
	}
	s.version = testJar.FindStringSubmatch(jars[0])[1]
	jar, err := zip.OpenReader(jars[0])
	if err != nil {
		return err
	}
	defer jar.Close()
	for _, file := range jar.File {
		if name, ok := strings.CutSuffix(strings.ReplaceAll(file.Name, "/", "."), "Test.class"); ok {
			s.classes = append(s.classes, strings.TrimPrefix(name, kafkaPackage)+"Test")
		}
	}
	slices.Sort(s.classes)
	return nil
}

// kafkaCase is what became of one case.
type kafkaCase struct {
	name   string // the method, its number when it has several cases, and what sets them apart
	result verdict
	reason string // why it failed, or did not run
	took   time.Duration
}

// The verdicts that only cases of Kafka's tests have.
const (
	internals verdict = "internals" // it looks at what is inside a broker of Kafka, or asks for a setting that weir does not have
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
			cases[i].name = number.ReplaceAllString(cases[i].name, with)
		}
	}
}

// kafkaResult is one run: the cases of each class, in the order of their names.
type kafkaResult struct {
	version string // of Kafka
	commit  string // of weir
	mu      sync.Mutex
	classes map[string][]kafkaCase
	elapsed time.Duration
}

// runKafka runs the classes that o.run matches, or one method of one: CLASS#METHOD.
func runKafka(ctx context.Context, o options, scratch string) (*kafkaResult, error) {
	s, err := fetchKafkaSuite(ctx, scratch)
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
	class, method, _ := strings.Cut(o.run, "#")
	wanted, err := regexp.Compile(class)
	if err != nil {
		return nil, fmt.Errorf("--run %s: %w", o.run, err)
	}
	server, err := pgtest.Launch("")
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() { _ = server.Close() }() // a directory that stays behind changes no result
	if err := prepare(ctx, server); err != nil {
		return nil, fmt.Errorf("set PostgreSQL up: %w", err)
	}
	r := &kafkaResult{version: s.version, commit: strings.TrimSpace(string(commit)), classes: map[string][]kafkaCase{}}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.parallel)
	for _, class := range s.classes {
		if !wanted.MatchString(class) {
			continue
		}
		group.Go(func() error {
			cases, err := s.runClass(ctx, weir, server.Admin(), class, method)
			if err != nil {
				return fmt.Errorf("%s: %w", class, err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.classes[class] = cases
			return nil
		})
	}
	err = group.Wait()
	r.elapsed = time.Since(began).Round(time.Second)
	return r, err
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

// runClass runs one class in a JVM of its own. Failing cases are a result; an error means that
// there is none.
func (s *kafkaSuite) runClass(ctx context.Context, weir, postgres, class, method string) ([]kafkaCase, error) {
	if need := kafkaNeeds[class]; need != "" {
		return []kafkaCase{{name: "all", result: notRun, reason: need}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, classMax)
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
	jvm := exec.CommandContext(ctx, "java", "-Xmx1g", fmt.Sprintf("-Dweir.control=%d", c.port()), "-cp", s.classDir()+":"+filepath.Join(s.dir, "lib", "*"),
		"weir.Main", name, fmt.Sprintf("%d s", caseMax/time.Second))
	jvm.Stdout, jvm.Stderr = log, log
	ended := jvm.Run()
	cases, err := c.close()
	if err != nil {
		return nil, err
	}
	if ended != nil {
		if _, err := fmt.Fprintln(log, "the JVM ended:", ended); err != nil {
			return nil, err
		}
		if len(cases) == 0 {
			return nil, fmt.Errorf("run the class: %w; see %s", ended, log.Name())
		}
	}
	slices.SortFunc(cases, func(a, b kafkaCase) int { return cmp.Compare(a.name, b.name) })
	renumber(cases)
	return cases, nil
}

// summarizeKafka prints the cases that did not pass and have no reason, and counts them.
func summarizeKafka(w io.Writer, r *kafkaResult) (bad int) {
	count := map[verdict]int{}
	for _, class := range slices.Sorted(classNames(r)) {
		for _, c := range r.classes[class] {
			count[c.result]++
			if !c.asItShould(class) {
				bad++
				fmt.Fprintf(w, "%s: %s: %s: %s\n", class, c.name, c.result, c.reason)
			}
		}
	}
	fmt.Fprintf(w, "Kafka %s: %d passed, %d failed, %d of a broker's internals, %d skipped, %d unfinished, %d classes not run, in %v\n",
		r.version, count[passed], count[failed], count[internals], count[skips], count[unfinished], count[notRun], r.elapsed)
	return bad
}

// asItShould reports whether a case has the expected result: it passed, it is none that weir can
// have, or it needs what weir does not have yet.
func (c kafkaCase) asItShould(class string) bool {
	return c.result == passed || c.result == internals || c.result == notRun || c.need(class) != ""
}

// need returns what a case needs and weir does not have.
func (c kafkaCase) need(class string) string {
	return kafkaNeeds[class+"#"+c.method()]
}

func (c kafkaCase) method() string {
	method, _, _ := strings.Cut(c.name, " ")
	return method
}
