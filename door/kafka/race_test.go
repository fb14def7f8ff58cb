//go:build race

package kafka

// With the race detector the compiler does not merge append and make, as kmsg has them for arrays,
// into one allocation.
const arrayCopies = 2
