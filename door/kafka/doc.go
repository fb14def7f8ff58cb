// Package kafka serves Kafka clients: it speaks Kafka's protocol over TCP, as one of the brokers on
// a store (package broker). Every broker can serve every partition.
//
// Each API key has a file of its own, named after it; keys.go lists them all. conn.go reads
// requests and writes answers, frame.go, budget.go and claims.go bound the memory of a client,
// code.go maps our errors to Kafka's codes.
package kafka
