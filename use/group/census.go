package group

import (
	"fmt"
	"sync"
)

// census bounds how many groups the store has: everyone who may read may name new ones. It knows
// what the last sweep found, and what this process did since; other processes count by themselves,
// so that the store may have more until the next sweep.
type census struct {
	most int

	mu    sync.Mutex // guards the fields below
	found int        // by the last sweep
	since int        // made by this process since that sweep began, less those deleted
}

// admit returns ErrTooMany if there may be no new group.
func (c *census) admit(group string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.found + c.since; n >= c.most {
		return fmt.Errorf("group %q does not exist yet: %w: there are %d, the limit is %d. Delete groups that nobody needs; "+
			"one without members whose offsets nobody commits is deleted after a while", group, ErrTooMany, n, c.most)
	}
	return nil
}

// count adds groups that this process has made; a negative number is of those that it has deleted.
func (c *census) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since += n
}

// begin is called before a sweep reads the groups. The function that it returns takes the number
// that there are.
func (c *census) begin() func(found int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.since
	return func(found int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.found, c.since = found, c.since-before
	}
}
