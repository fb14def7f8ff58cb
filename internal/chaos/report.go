package main

import (
	"fmt"
	"io"
)

// aroundViolation is how many events of the history a report of a violation shows.
const aroundViolation = 60

// report tells what was broken, with what happened around it, and how to run it again.
func (w *world) report(out io.Writer, found []violation) {
	const mostOfEach = 3
	told := map[string]int{}
	for i, v := range found {
		if told[v.invariant]++; told[v.invariant] > mostOfEach {
			continue
		}
		fmt.Fprintf(out, "\nBROKEN %s (%s), at %v, seed %d on %s:\n  %s\n", v.invariant, invariants[v.invariant], v.at, w.seed, w.opt.store, v.text)
		if i == 0 {
			fmt.Fprintln(out, "what happened around it:")
			for _, e := range w.history.around(v.at, v.about, aroundViolation) {
				fmt.Fprintf(out, "  %v %s\n", e.at, e.text)
			}
		}
	}
	fmt.Fprintf(out, "\n%d violations: %v\n", len(found), told)
	fmt.Fprintf(out, "all that happened, and what the processes said: %s\nagain: make chaos ARGS='%s'\n", w.dir, w.opt.again(w.seed))
}

// invariants names what is checked. The numbers are those that the messages have.
var invariants = map[string]string{
	"L1":  "no acknowledged record is lost",
	"L2":  "no phantom: what is read was published, and not rolled back or refused",
	"L3":  "an offset has one value, and a record one offset",
	"L4":  "records enter a partition in the order in which they were published one after the other",
	"L5":  "offsets are dense, and nothing appears below what a reader has passed",
	"L6":  "the end of a partition does not go back",
	"L7":  "whoever waits is told in time",
	"L9":  "retention drops what it may, and nothing else",
	"L10": "a topic made anew under a name is another topic",
	"G1":  "a group gets every event at least once: nothing below what it committed is unread",
	"G2":  "a group goes on where it committed last",
	"G3":  "what a group has committed is what it committed last, whoever is asked",
	"G4":  "a group refuses who is not its member",
	"G5":  "in one generation a partition has one owner, whoever is asked (and so G7)",
	"G6":  "what is committed in the transaction that handles it is handled once",
	"G8":  "a group lives and gets on, whoever looks at it",
	"S1":  "appends to a stream are linearizable, conflicts included",
	"S2":  "versions are dense, and each has one event",
	"S3":  "the events of one append are there together, or none is",
	"S5":  "a category's topic has the events of each stream in the order of their versions",
	"S7":  "a stream that was deleted does not come back, and its versions go on where it is begun again",
	"S8":  "a projection gets all events of a stream, in order; in its transactions once",
	"S9":  "a snapshot that is loaded is the newest up to the version that was asked for, and not from before a deletion",
	"S10": "an archived stream takes no appends, and one that is not archived does",
	"S11": "what is about a subject that was forgotten cannot be read, and everything else can",
	"S12": "by a tag all events are read that have it, and a decision that rests on them is appended if no other came",
	"P2":  "a batch that is said to be a duplicate is in the log, where the answer says",
	"P3":  "a producer's sequence numbers have no hole",
	"P4":  "a producer that moved on to an epoch is not heard in an older one",
	"P6":  "no two producers have one id",
	"Q1":  "a message that was enqueued is acknowledged or dead in the end, and not both; nothing else is handed out",
	"Q2":  "a message that was acknowledged, rejected or purged never comes back",
	"Q3":  "a message has one live claim",
	"Q4":  "a receipt has no power once the message was claimed again, and each claim is another attempt",
	"Q5":  "attempts are bounded, and a message becomes a dead letter once",
	"Q7":  "a message is not handed out before its time",
	"Q9":  "messages of a key are handed out one after the other",
	"Q10": "while a message of a unique key is not done, no other is enqueued",
	"QP":  "a paused queue hands out nothing",
	"QT":  "a message is not handed out after its time to live",
	"QL":  "no more messages are claimed at a time than the queue's limit",
	"QR":  "a dead letter that was redriven is one message again, one that was discarded is none, and neither is a letter any more",
	"QB":  "a list of messages has none that was acknowledged, and each that stays in its queue once",
	"QA":  "a transaction that acknowledges is done if it commits, and a message has one result of such",
	"QS":  "a tick of a schedule has one message",
	"B0":  "a process does not end by itself",
	"B1":  "a process that was killed starts again",
	"B3":  "a process ends soon after SIGTERM",
	"B4":  "a partition moves to another shard while it is in use, and a move that was interrupted goes on",
	"D1":  "weir doctor shows what decides whether records survive, and tells what can lose them",
	"D2":  "a changed byte is an error of its own batch, and never other data",
	"D3":  "a store that went back in time is noticed: nobody passes over what has the offsets of what was lost",
	"D4":  "a program refuses tables that are newer than it",
	"M1":  "a key reaches what it is for, and nothing else",
	"R1":  "what was made and deleted leaves nothing behind in memory",
}
