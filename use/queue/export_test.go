package queue

// SearchLess bounds what one Find reads, in bytes.
func SearchLess(qs *Queues, bytes int64) { qs.searches.bytes = bytes }
