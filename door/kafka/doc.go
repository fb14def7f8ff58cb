// Package kafka is the door for Kafka clients: it speaks Kafka's protocol over TCP, as one broker that leads every
// partition.
//
// One file per API key, named after it, holds what that key means here; keys.go lists them all. conn.go moves requests and
// answers, frame.go and budget.go decide what a client may cost, code.go turns our errors into Kafka's codes.
package kafka
