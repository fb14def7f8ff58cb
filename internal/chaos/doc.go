// Chaos runs random histories against weir, through every door at once: two brokers and two programs with an embedded log share a store,
// all of them are killed, stopped and restarted, topics come and go, and a model judges every answer.
//
//	go run ./internal/chaos                                   two minutes on SQLite and two on PostgreSQL
//	go run ./internal/chaos -store sqlite -length 10m
//	go run ./internal/chaos -store postgres -seed 42          a run that was seen to fail
//	go run ./internal/chaos -kept                             the seeds that once failed
//	go run ./internal/chaos -mutants all                      puts faults back, and sees each found
//	go run ./internal/chaos -faults kill,crash -only kafka,go-tx,topics
//
// A seed decides what is done to whom and when, and what each actor chooses; how these meet is up to the machine.
//
// What acts, and where another one is added:
//
//	publishers.go   one entry for each way to publish: a function that sends records and says what became of them
//	consumers.go    one entry for each kind of group: a function that runs its members, which tell model.deliver what they handled
//	read_*.go       those that read without a group, and tell model.follow what they got
//	topics.go       making, deleting, growing and trimming topics through every door
//	lookers.go      those that only look, ask for what must be refused, and keep groups that do nothing
//	faults.go       what is done to processes and to the store; plan.go decides when
//
// A use that keeps state of its own adds its actors, and a function to finalCheck that holds what the store has at the end against
// what its callers were answered. A store adds a case to openStore, its faults to allFaults, and its name to the stores of a run.
//
// An answer is done, refused or unknown. What is unknown may be there or not, and counts as neither. Every check that speaks of time asks
// calm first whether anything was done to those concerned.
package main
