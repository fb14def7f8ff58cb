package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// asItShould reports whether a test has the expected result: it passed, or it was skipped and needs
// a feature that weir does not have yet.
func asItShould(test string, v verdict) bool {
	return v == passed || v == skips && needs[test] != ""
}

// summarize prints a line for each store and each test that did not do what it should, and counts
// these tests.
func summarize(w io.Writer, all []result) (bad int) {
	for _, r := range all {
		count := map[verdict]int{}
		for _, test := range slices.Sorted(maps.Keys(r.tests)) {
			v := r.tests[test]
			count[v]++
			if !asItShould(test, v) {
				bad++
				fmt.Fprintf(w, "%s: %s: %s\n", r.on, test, v)
			}
		}
		fmt.Fprintf(w, "%s: %d passed, %d failed, %d skipped, %d unfinished, subtests included, in %v\n",
			r.on, count[passed], count[failed], count[skips], count[unfinished], r.elapsed)
	}
	return bad
}

// writeDocument writes what a reader wants to know: each test that speaks to the broker, with its
// result per store.
func writeDocument(ctx context.Context, path string, s *suite, o options, all []result) error {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return fmt.Errorf("git describe: %w", err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Conformance

This page is written by %[1]smake conformance%[1]s, which runs the tests of a Kafka client that knows nothing of weir:
[franz-go](https://github.com/twmb/franz-go)'s own %[1]spkg/kgo%[1]s, unchanged, against %[1]sweir serve%[1]s on each store.

| | |
| --- | --- |
| franz-go | %[2]s |
| weir | %[3]s |
| Go, machine | %[4]s, %[5]s/%[6]s, %[7]d cores |
| records through each chain of groups | %[8]d |
| time | %[9]s |

To test only one store: %[1]smake conformance ARGS='--store sqlite'%[1]s. To test another broker, for comparison: %[1]sARGS='--broker HOST:PORT'%[1]s.

`, "`", s.version, strings.TrimSpace(string(commit)), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.records, times(all))

	rows, alone := tests(s, all)
	fmt.Fprintf(&b, "## Tests that speak to the broker\n\nSubtests are listed if their results differ. A skipped test needs the feature that is named, which weir does not have yet.\n\n")
	fmt.Fprintf(&b, "| test |%s\n| --- |%s\n", columns(all, func(r result) string { return r.on }), columns(all, func(result) string { return "---" }))
	for _, test := range rows {
		fmt.Fprintf(&b, "| %s |%s\n", test, columns(all, func(r result) string { return cell(test, r) }))
	}
	fmt.Fprintf(&b, "\n## Tests of only the client\n\nThey also ran, and %s. They use no broker.\n\n%s\n", fate(alone, all), strings.Join(alone, ", "))
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func times(all []result) string {
	var s []string
	for _, r := range all {
		s = append(s, fmt.Sprintf("%s %v", r.on, r.elapsed))
	}
	return strings.Join(s, ", ")
}

// tests returns the rows of the table, and the tests that need none.
func tests(s *suite, all []result) (rows, alone []string) {
	seen := map[string]bool{}
	for _, r := range all {
		for test := range r.tests {
			seen[test] = true
		}
	}
	for _, test := range slices.Sorted(maps.Keys(seen)) {
		top, _, isSub := strings.Cut(test, "/")
		switch {
		case !s.speaks[top]:
			if !isSub {
				alone = append(alone, test)
			}
		case !isSub || !uniform(top, all):
			rows = append(rows, test)
		}
	}
	return rows, alone
}

// uniform tells whether a test and all its subtests passed on every store.
func uniform(top string, all []result) bool {
	for _, r := range all {
		for test, v := range r.tests {
			if v != passed && (test == top || strings.HasPrefix(test, top+"/")) {
				return false
			}
		}
	}
	return true
}

func columns(all []result, text func(result) string) string {
	var b strings.Builder
	for _, r := range all {
		b.WriteString(" " + text(r) + " |")
	}
	return b.String()
}

func cell(test string, r result) string {
	v, ran := r.tests[test]
	switch {
	case !ran:
		return "–"
	case v == passed:
		return string(passed)
	case v == skips && needs[test] != "":
		return "skipped: " + needs[test]
	}
	return "**" + string(v) + "**"
}

// fate says in words what became of tests.
func fate(tests []string, all []result) string {
	var bad []string
	for _, r := range all {
		for _, test := range tests {
			if v := r.tests[test]; v != passed {
				bad = append(bad, fmt.Sprintf("%s: %s on %s", test, v, r.on))
			}
		}
	}
	if len(bad) == 0 {
		return "all passed"
	}
	return "all passed except these: " + strings.Join(bad, "; ")
}
