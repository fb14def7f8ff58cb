package main

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

const kafkaDocument = "docs/conformance-kafka.md"

func classNames(r *kafkaResult) iter.Seq[string] { return maps.Keys(r.classes) }

// writeKafkaDocument lists every case of every class, with its result or why it has none.
func writeKafkaDocument(path string, r *kafkaResult) error {
	count := map[verdict]int{}
	needs := 0
	for class, cases := range r.classes {
		for _, c := range cases {
			if c.result != passed && c.need(class) != "" {
				needs++
				continue
			}
			count[c.result]++
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Kafka's own integration tests

This page is written by %[1]smake conformance ARGS=--kafka%[1]s. It runs the integration tests of Kafka's clients
(the classes that Kafka publishes as %[1]skafka-clients-integration-tests%[1]s, unchanged) against %[1]sweir serve%[1]s. A test of Kafka says
which cluster it wants; here it gets processes of weir, as many as it wants, on one new PostgreSQL database, and without an audit topic.

| | |
| --- | --- |
| Kafka's tests | %[2]s |
| weir | %[3]s |
| Go, machine | %[4]s, %[5]s/%[6]s, %[7]d cores |
| time | %[8]v |
| passed | %[9]d |
| failed | %[10]d |
| need what weir does not have yet, or expect what it does in another way | %[11]d cases, and %[12]d classes that were not run |
| look inside a broker of Kafka, or set what weir does not have | %[13]d |

Needs Maven and a JDK of version 17 or newer. One class: %[1]sARGS='--kafka --run PlaintextConsumerPollTest'%[1]s; one test: %[1]s--run 'PlaintextConsumerPollTest#testMaxPollRecords'%[1]s.

A test that Kafka runs twice, with its controllers inside its brokers and beside them, runs once: weir has no controllers.
`, "`", r.version, r.commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), r.elapsed,
		count[passed], count[failed]+count[unfinished]+count[skips], needs, count[notRun], count[internals])
	for _, class := range slices.Sorted(classNames(r)) {
		fmt.Fprintf(&b, "\n## %s\n\n", class[strings.LastIndex(class, ".")+1:])
		if cases := r.classes[class]; len(cases) == 1 && cases[0].result == notRun {
			fmt.Fprintf(&b, "Not run: %s.\n", cases[0].reason)
			continue
		}
		fmt.Fprintf(&b, "| case | result |\n| --- | --- |\n")
		for _, c := range r.classes[class] {
			fmt.Fprintf(&b, "| %s | %s |\n", escaped(c.name), c.cell(class))
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func (c kafkaCase) cell(class string) string {
	need := c.need(class)
	switch {
	case c.result == passed:
		return string(passed)
	case c.result == internals:
		return "internals: " + escaped(strings.TrimPrefix(c.reason, "broker internals: "))
	case need != "":
		return "differs: " + escaped(need)
	}
	return "**" + string(c.result) + "**: " + escaped(c.reason)
}

// escaped keeps the text of a test from ending a cell of a table.
func escaped(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s)
}
