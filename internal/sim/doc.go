// Package sim runs the whole product on a simulated store in fake time (testing/synctest), and
// judges what its callers were answered by the models of internal/judge.
//
//	make sim                                    a minute of random seeds
//	make sim ARGS='-seeds 10000'                a night
//	make sim ARGS='-store s3 -seed 42 -show'    one seed on one kind of store, with its history
//	make sim ARGS='-first -history FILE -log'   ends with the first history that breaks something, and keeps it, with what processes logged
//	make sim ARGS=-mutants                      puts former faults of weir back, and prints how soon each is found
//
// A process is a weir.Log with all that it is made of, and in it consumers, a projector and a
// process manager. Some processes share one store. A plan (plan.go) that the seed decides says what
// is done to whom and when: processes crash, stand still and start again; the store, or one member
// of it, for all or for one process, is away, slow, full, or in another incarnation; a copy is put
// back.
//
// The kinds of stores (stores.go), and what may happen to a call:
//
//	memory   calls take time, get lost before or after their commit, arrive late, or find the store full
//	s3       a bucket (internal/simbucket): besides, PUTs arrive twice, DELETEs hours later, LISTs late, 409 and 503;
//	         a snapshot after 100 commits, and a grace of 40 s, so that segments and collections come in minutes;
//	         where copies are put back, after 20, 50 or 100 commits, and its PUT may take seconds
//	shards   three stores in memory as one set: a member is away for some processes only, or put back alone
//	cache    memory, and a cache in front of it in each process, with few and small blocks
//
// What acts, and what judges it:
//
//	publish.go  publications, once and more than once; readers; consumer groups       L1 to L6, G1, G8
//	clients.go  Kafka clients of both protocols, in groups that change theirs         G1, G5
//	topics.go   topics that are deleted and made anew, with retention, compacted      L1, L10
//	queues.go   work queues with their settings, workers that are slow or die         Q1 to Q5, Q7, Q9, Q10, QT, QL
//	moves.go    partitions that move between shards, by a process that may be killed  B4, D3
//	managers.go a process manager; a schedule over the change to summer time          S6, QS
//	streams.go  appends, conflicts, deletions, archives, subjects, tags, snapshots,   S1 to S3, S5, S7 to S12
//	            a projection
//	ledger.go   in every fourth history copies are put back, 0.2 to 4 s old, and      L1 to L3, L5, G1, D3, Q1, B1
//	            often processes are started again right after it; then only this
//	            counts: what was acknowledged to calls that began later
//
// At the end nothing is done to anybody any more: within settleMax of fake time all must be
// delivered and acknowledged, everything closes, and no goroutine is left (synctest sees to that).
// A history that does not end fails with its seed, and says what its goroutines wait for
// (watch_test.go).
//
// A seed decides the plan, the actors' choices, and the product's own random numbers
// (internal/chance, crypto/rand). What remains to chance is the runtime's: which goroutine runs
// first at one moment of fake time (consumers of several groups whose wait ends with the same
// flush, actors of one process that draw from the same source of delays), which of several cases
// of a select that are ready is taken, and the order of maps (those who wait for a partition). So a
// history is not the same byte for byte. Whoever reports a seed says in how many of ten further
// runs it failed again.
package sim
