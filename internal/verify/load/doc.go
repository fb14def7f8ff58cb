// Package load writes to a store and reads from it for a while, through every protocol that it is
// given, while somebody does harm to what is below. It keeps a history of what was promised and of
// what came, and judges that.
//
//	Protocol ── writes, reads ──► runner ── entries ──► History ──► file
//	                                                      │
//	                                                     judge ──► Report
//
// The history alone is judged: Judge reads the file, and comes to the same report as the run did.
//
// Each event says which of which writer it is (ledger.Stamp). A writer sends one call after the
// other, with the same key or to the same stream, so its events have an order. A call has one of
// three outcomes: done, certainly not done (Refused), unknown (every other error). A writer does
// not repeat a call.
package load
