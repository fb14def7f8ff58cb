// Package sim runs the whole product on a simulated store in fake time (testing/synctest), and
// judges what its callers were answered by the models of internal/judge.
//
//	make sim                          a minute of random seeds
//	make sim ARGS='-seeds 10000'      a night
//	make sim ARGS='-seed 42 -show'    one seed, with its history
//
// A process is a weir.Log, with what stands below it: the log, all uses, consumers, workers, a
// projector. Some processes share one store in memory. Between each and the store is a link
// (link.go): calls take time, get lost before or after their commit, arrive late, or find the store
// full. A plan (plan.go) that the seed decides says what is done to whom and when: processes crash,
// stand still and start again, the store is away, slow, full, or in another incarnation.
//
// What acts, and what judges it:
//
//	publish.go  publications, once and more than once; readers; consumer groups       L1 to L6, G1, G8
//	queues.go   work queues with their settings, workers that are slow or die         Q1 to Q5, Q7, Q9, Q10, QT, QL
//	streams.go  appends, conflicts, deletions, archives, subjects, tags, snapshots,   S1 to S3, S5, S7 to S12
//	            a projection
//
// At the end nothing is done to anybody any more: within settleMax of fake time all must be
// delivered and acknowledged, everything closes, and no goroutine is left (synctest sees to that).
//
// A seed decides the plan, the actors' choices and the delays. What remains to chance: which
// goroutine runs first at one moment of fake time, select statements with several cases that are
// ready, and random numbers that the product draws for itself.
package sim
