package cli

import (
	"runtime"
	"testing"
)

// With the floor Go collects when the heap has twice its size at the earliest.
func TestFloorPutsOffCollections(t *testing.T) {
	kept := floor()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.NextGC < 2*heapFloor {
		t.Errorf("the next collection is at %d bytes, want %d at least", m.NextGC, 2*heapFloor)
	}
	runtime.KeepAlive(kept)
}
