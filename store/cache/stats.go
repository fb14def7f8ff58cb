package cache

import "sync/atomic"

// Stats are what a cache has done since it was opened, and what it holds.
type Stats struct {
	Hits, Misses            int64 // parts of reads that the files answered, and those that the store below did
	HitBytes, MissBytes     int64 // of batches that readers got
	Evictions               int64 // blocks that were removed for newer ones
	ReadErrors, WriteErrors int64
	Blocks, Bytes           int64 // present
}

type counters struct {
	hits, misses, hitBytes, missBytes, evictions, readErrors, writeErrors atomic.Int64

	fills atomic.Int64 // reads of the store below in progress
}

// Stats returns what the cache has done.
func (s *Store) Stats() Stats {
	c := &s.stats
	stats := Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(), HitBytes: c.hitBytes.Load(), MissBytes: c.missBytes.Load(),
		Evictions: c.evictions.Load(), ReadErrors: c.readErrors.Load(), WriteErrors: c.writeErrors.Load(),
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	stats.Blocks, stats.Bytes = int64(s.disk.order.Len()), s.disk.held
	return stats
}
