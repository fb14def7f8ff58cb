package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// writeKafkaDocument lists every case of every class, with its result or why it has none.
func writeKafkaDocument(path string, r *kafkaResult) error {
	count := map[verdict]int{}
	needs, whole := 0, 0
	for class, c := range r.ran() {
		if _, is := c.whole(); is {
			whole++
			continue
		}
		for _, c := range c.Cases {
			if c.Result == notRun || c.Result != passed && c.need(class) != "" {
				needs++
				continue
			}
			count[c.Result]++
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# %[2]s

This page is written by %[1]smake conformance ARGS=%[3]s%[1]s. It runs the integration tests of %[4]s
(the classes that Kafka publishes as %[1]s%[5]s%[1]s, unchanged) against %[1]sweir serve%[1]s. A test of Kafka says
which cluster it wants; here it gets processes of weir, as many as it wants, on one new PostgreSQL database, and without an audit topic.

| | |
| --- | --- |
| Kafka's tests | %[6]s |
| weir | %[7]s |
| Go, machine | %[8]s, %[9]s/%[10]s, %[11]d cores |
| time of all classes, one after the other | %[12]v |
`, "`", r.title, r.flag, r.of, r.artifact, r.version, r.commits(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), r.took())
	fmt.Fprintf(&b, `| passed | %d |
| failed | %d |
| need what weir does not have yet, or expect what it does in another way | %d cases, and %d classes that were not run |
| look inside a broker of Kafka, or set what weir does not have | %d |
`, count[passed], count[failed]+count[unfinished]+count[skips], needs, whole, count[internals])
	if n := count[disabled]; n > 0 {
		fmt.Fprintf(&b, "| disabled by Kafka itself | %d |\n", n)
	}
	if ahead := r.ahead(); len(ahead) > 0 {
		fmt.Fprintf(&b, "| not run yet | %d classes: %s |\n", len(ahead), strings.Join(ahead, ", "))
	}
	fmt.Fprintf(&b, `
Needs Maven and a JDK of version 17 or newer. One class: %[1]sARGS='%[2]s --run %[3]s'%[1]s; one test: %[1]s--run '%[3]s#%[4]s'%[1]s.

%[5]s
`, "`", r.flag, r.class, r.method, r.note)
	for class, c := range r.ran() {
		fmt.Fprintf(&b, "\n## %s\n\n", simple(class))
		if why, is := c.whole(); is {
			fmt.Fprintf(&b, "Not run: %s.\n", why)
			continue
		}
		fmt.Fprintf(&b, "| case | result |\n| --- | --- |\n")
		for _, r := range c.rows(class) {
			fmt.Fprintf(&b, "| %s | %s |\n", escaped(r.name), r.cell)
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// row is a line of the table of a class.
type row struct{ name, cell string }

// rowsMax is how many cases of a method with the same result have rows of their own.
const rowsMax = 6

// rows has one row for each case, or one for all cases of a method that have the same result.
func (c *kafkaClass) rows(class string) (rows []row) {
	same := map[row]int{}
	for _, c := range c.Cases {
		same[row{c.method(), c.cell(class)}]++
	}
	for _, c := range c.Cases {
		r := row{c.Name, c.cell(class)}
		if n := same[row{c.method(), r.cell}]; n > rowsMax {
			r.name = fmt.Sprintf("%s, %d cases", c.method(), n)
		}
		if !slices.Contains(rows, r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// simple is the name of a class without its package.
func simple(class string) string { return class[strings.LastIndex(class, ".")+1:] }

// ahead are the classes that were not run yet.
func (r *kafkaResult) ahead() (names []string) {
	for _, class := range slices.Sorted(maps.Keys(r.classes)) {
		if r.classes[class] == nil {
			names = append(names, simple(class))
		}
	}
	return names
}

// commits names the commit of weir that most classes ran with, and the others with their classes.
func (r *kafkaResult) commits() string {
	of := map[string][]string{}
	for class, c := range r.ran() {
		if _, is := c.whole(); !is {
			of[c.Commit] = append(of[c.Commit], simple(class))
		}
	}
	commits := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(of[b]), len(of[a])), cmp.Compare(a, b))
	})
	var said []string
	for i, commit := range commits {
		if i > 0 {
			commit = strings.Join(of[commit], ", ") + ": " + commit
		}
		said = append(said, commit)
	}
	return strings.Join(said, "; ")
}

func (c kafkaCase) cell(class string) string {
	need := c.need(class)
	switch {
	case c.Result == passed:
		return string(passed)
	case c.Result == disabled:
		return "disabled by Kafka"
	case c.Result == notRun:
		return "not run: " + escaped(c.Reason)
	case c.Result == internals:
		return "internals: " + escaped(strings.TrimPrefix(c.Reason, "broker internals: "))
	case need != "":
		return "differs: " + escaped(need)
	}
	return "**" + string(c.Result) + "**: " + escaped(c.Reason)
}

// escaped keeps the text of a test from ending a cell of a table.
func escaped(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s)
}
