package run

import "time"

// Tests share their machine: the generator is as late as they are.
func init() { lateLeast = time.Hour }
