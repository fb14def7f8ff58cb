//go:build race

package group_test

// idleMembers is fewer with the race detector, with which 2,000 take a minute.
const idleMembers = 200
