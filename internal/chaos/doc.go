// Chaos runs random histories against weir, through every door at once: two brokers and two
// programs with an embedded log share a store, or a set of shards, all of them are killed, stopped
// and restarted, topics come and go, and a model judges every answer.
//
//	go run ./internal/chaos                                   two minutes each on SQLite, PostgreSQL and MariaDB, one minute each on S3 and a set of shards
//	go run ./internal/chaos -store sqlite -length 10m
//	go run ./internal/chaos -store postgres -seed 42          a run that was seen to fail
//	go run ./internal/chaos -kept                             the seeds that once failed
//	go run ./internal/chaos -mutants                          puts faults back, sees each found, and prints a table of them
//	go run ./internal/chaos -mutants -real                    the faults of S3 and of shards that tests find, by histories in real time
//	go run ./internal/chaos -faults kill,crash -only kafka,go-tx,topics
//
// A seed decides what is done to whom and when, and what each actor chooses; how these meet is up
// to the machine.
//
// What acts, and where another one is added:
//
//	publishers.go   one entry for each way to publish: a function that sends records and says what became of them
//	consumers.go    one entry for each kind of group: a function that runs its members, which tell Model.Deliver what they handled
//	read_*.go       those that read without a group, and tell Model.Follow what they got
//	topics.go       making, deleting, growing and trimming topics through every door
//	queues.go       work queues: enqueuing through every door, workers over HTTP, in Go and with SQL that are slow, die and answer twice, pauses, purges;
//	                queues_sql.go, child_queues.go: transactions that enqueue, and that acknowledge where they write their result, with SQL and in Go;
//	                browse.go: their messages are listed;
//	                letters.go: dead letters are listed, redriven (some or all, by both brokers at once, or once more) and discarded; schedules.go: a schedule
//	streams.go      event-sourced streams, in Go and over HTTP (streams_http.go): appends at versions, two at one version at the same time, to two streams at
//	                once, about subjects; reads, over HTTP in pages; deletions, archives, subjects that are forgotten; a projection that is rebuilt;
//	                stream_tags.go: decisions that rest on the events with a tag; stream_snapshots.go: snapshots are saved and loaded
//	lookers.go      those that only look, ask for what must be refused, and keep groups that do nothing
//	faults.go       what is done to processes and to the store; plan.go decides when; moves.go: a partition moves to another shard;
//	                links.go: a process does not reach a shard that others reach
//	putbacks.go     on S3, once all others have finished: copies of the bucket are put back under processes that write
//
// A use that keeps state of its own adds its actors, and a function to finalCheck that compares
// what the store has at the end with what its callers were answered. A store is an engine
// (engine.go): it adds a case to openEngine, its faults to allFaults, and its name to the stores of
// a run.
//
// A set of shards has three engines, a PostgreSQL, a MariaDB and a SQLite file; the seed decides
// which one is shard 0. A crash is that of one shard. Five faults are for sets only: lose kills a
// process and starts it again while a shard is away, hang suspends a shard's server, move moves a
// partition (moves.go), part cuts one process off from a shard while another shard crashes, and
// remake deletes a topic through a process that does not reach one of its shards, and makes it
// anew, while somebody publishes through a process that does not hear of it (links.go).
//
// On S3 the last quarter of a run is a history of its own: again and again a copy of the bucket, up
// to three seconds old, is put back under processes that write over slow lines, fall behind, write
// snapshots and are killed (putbacks.go). What the other actors rely on is lost then, so they have
// finished before.
//
// Which invariants are checked (internal/judge/invariants.go says what each is), and by what:
//
//	L1 to L7, L9, L10   held.go, life.go, model.go of internal/judge, and final.go: acknowledgements, everything that readers got, and a last look at the log. Events with old
//	                    timestamps must stay until retention may be due (topics.go, keepsOf). L8, fidelity, is no matter of histories.
//	P1                  L3: no record is in the log twice
//	P2, P3, P4, P5      publish_raw.go: batches that are sent again, after kills too, numbers that are left out, epochs that were left; and the producers' numbers
//	                    of all batches that the log has at the end. P6: no two producers have one id
//	G1, G6              deliveries against what was committed; bills that handlers write in the transaction: at the end, and of a topic that passes
//	                    right before it is deleted (bills.go)
//	G2, G3, G5, G7      judge/register.go, of Kafka's members: they tell what they commit, in which generation, and what they were assigned. G3 is judged as one register: what was
//	                    read must have been possible at some time of the reading. Go and HTTP members do not show generations. The members of a Kafka
//	                    group are at one broker, as brokers do not know of each other, so G7 is G5 across that broker's restarts
//	G4                  lookers.go: commits of somebody who is no member
//	G8                  lookers.go, and final.go: groups get to the end of everything
//	Q1 to Q5, Q7        judge/queues.go, at each claim and each answer; Q3 by our clock, and by the store's where both claims tell it
//	Q9, Q10             judge/queues.go, at the end
//	QR                  judge/letters.go: redrives and discards, at each list, claim and answer; at the end by all letters that ever were, and all messages in the topic.
//	                    A queue that is purged may list what was taken before, until a process hears of the purge: that is not judged
//	QB                  judge/browse.go: lists of a queue's messages, each when its last page was read
//	QA                  judge/queues.go, at the end: the results that transactions wrote which acknowledged, against what became of each. That a message does not
//	                    come back once such a commit is known is Q2. What was given back beside SQL after it is not judged: that is not promised
//	S1 to S3, S5, S7,   judge/streams.go, at each answer, and judge/streams_end.go, at the end: a category's topic has all that happened to its streams but archives,
//	S8, S10, S11        in its order. S4 is in them, as appends of unknown outcome are repeated, and S6: readers reach what a conflict told (S1). Archives
//	                    are judged by their answers alone
//	S9, S12             judge/snapshots.go, at each load; judge/tags.go, at each reading by a tag, and at the end by the order of the events that have it.
//	                    Retention is applied every ten minutes, and so not here
//	QT, QL              judge/queues.go: times to live, and limits of claims
//	QS                  schedules.go, at the end: a tick of a schedule has one message
//	Q6, Q8, Q11         not here: Q6 wants a snapshot of the store, Q8 a message that breaks its worker; Q1 stands for Q11 as far as it goes
//	D5                  final.go, after the end of the history, and after put-backs: weir verify finds nothing
//	D1, D2, D4, M1      harm.go, tenants.go: once the histories are over and everything is deleted the store is changed by hand, under brokers that run.
//	                    D4 as far as that tables newer than the program are refused: there is no older release that could run beside this one
//	L1, L2, L3, D3      judge/putback.go, of histories with put-backs: what was acknowledged before a copy was taken, or to a call that began after it was put
//	                    back, is there, and all processes show the same. B1: who was killed starts again, at the latest when it is told which commit is void
//	L6                  consume_kafka.go, read_sse.go, too: nobody who reads is told that records are lost
//	D3                  restore.go, likewise: a backup is put back under brokers and readers that run. A standby that is promoted is a test of store/postgres
//	M2                  not here: it wants quotas
//	B4                  moves.go: partitions move between shards
//	B0, B1, B3, R1      processes: they live, start, end in time, and leave nothing behind: brokers once everything is deleted, embedded logs once they are closed
//
// An answer is done, refused or unknown. What is unknown may be there or not, and counts as
// neither. Every check that speaks of time asks calm first whether anything was done to those
// concerned.
package main
