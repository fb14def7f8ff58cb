// Package batch reads, checks, patches and builds record batches in Kafka's v2 layout (magic 2).
package batch
