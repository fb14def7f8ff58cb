//go:build !race

package kafka

const arrayCopies = 1
