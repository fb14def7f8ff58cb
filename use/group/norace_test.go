//go:build !race

package group_test

const idleMembers = 2000
