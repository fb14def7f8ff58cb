package run

import "time"

// Tests share their machine: the generator is as late as they are. They have no time for many
// readings of a system that is slow.
func init() { lateLeast, readingsFor = time.Hour, 2*time.Second }
