package node

import "github.com/weir-log/weir/internal/verify"

// Checks are those of the uses, for verify.Run.
func Checks() []verify.Check { return nil }
