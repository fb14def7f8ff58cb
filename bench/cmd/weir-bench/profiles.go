package main

import (
	"fmt"
	"io"

	"github.com/weir-log/weir/bench/system"
)

// profile is a choice of workloads and systems for somebody who wants to know something.
type profile struct {
	about     string
	workloads []string
	systems   []string // those that are not there are left out
	scale     float64
	runs      int
}

var profiles = map[string]profile{
	"try":      {"does it run here? Two minutes", []string{"one-event", "p-queue"}, []string{"null", "weir-sqlite"}, 0.15, 1},
	"choose":   {"which system? Forty minutes", []string{"one-event", "p-pubsub", "p-queue", "appends"}, []string{"weir-sqlite", "weir-postgres", "pg-plain"}, 1, 3},
	"commit":   {"two commits, with --against", []string{"one-event", "p-pubsub", "p-queue", "appends"}, []string{"weir-sqlite", "weir-postgres"}, 0.3, 6},
	"p":        {"the article's commands, at its rates and as fast as it goes", []string{"p4-pubsub", "p4-queue", "p-pubsub", "p-queue"}, []string{"weir-postgres", "pg-plain"}, 1, 3},
	"paper":    {"the paper's scenarios, to the letter: hours", []string{"paper-a", "paper-a-exact", "paper-b", "paper-c"}, []string{"weir-postgres", "pg-plain", "message-db", "emmett"}, 1, 1},
	"badhours": {"a foreign snapshot, kills, pauses: hours", []string{"bad-xmin", "bad-xmin-log", "bad-kill", "bad-kill-queue", "bad-pause"}, []string{"weir-postgres", "pg-plain", "pgmq", "pgq"}, 1, 1},
	"all":      {"a night", []string{"one-event", "p-pubsub", "p-queue", "p-queue-100", "appends"}, []string{"null", "weir-sqlite", "weir-postgres", "weir-mysql", "weir-s3", "pg-plain"}, 1, 3},
}

// ready are the systems of a profile that are there. Of the others it says what they lack.
func (p profile) ready(told io.Writer) (names []string) {
	for _, name := range p.systems {
		s, err := system.Find(name)
		if err == nil {
			err = s.Missing()
		}
		if err != nil {
			fmt.Fprintln(told, "left out:", err)
			continue
		}
		names = append(names, name)
	}
	return names
}
