// Package ledger changes keys of the store.
//
// A [Writer] changes one key for many callers: operations that come together share an entry, and
// what the key holds is remembered, so that an entry costs one store call. [Change] changes a key
// once. [Turn] takes a turn by the key's age.
//
// Any number of Writers, in any number of processes, may change one key: each entry checks that the
// key is at the version that the operations were judged by. A Writer that another one overtakes
// reads the key, and judges again.
package ledger
