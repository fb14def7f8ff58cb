package group

import (
	"fmt"
	"maps"
	"sync"
)

// makersShare bounds the groups of one client to half of what other clients leave of the store's
// groups. So there is always space for a group of one more client, however many a few have made.
const makersShare = 2

// census bounds how many groups the store has, in all and by maker: every client that may read may
// name new groups. It knows what the last sweep found, and what this process did since; other
// processes count by themselves, so that the store may have more until the next sweep.
type census struct {
	most int

	mu    sync.Mutex // guards the fields below
	found tally      // by the last sweep
	since tally      // made by this process since that sweep began, less those deleted
}

// tally is numbers of groups.
type tally struct {
	all int
	of  map[string]int // by maker, except groups that nobody made ("")
}

func (t *tally) add(maker string, n int) {
	t.all += n
	if maker == "" {
		return
	}
	if t.of == nil {
		t.of = make(map[string]int)
	}
	if t.of[maker] += n; t.of[maker] == 0 {
		delete(t.of, maker)
	}
}

// take takes away what another tally has.
func (t *tally) take(other tally) {
	t.all -= other.all
	for maker, n := range other.of {
		if t.of[maker] -= n; t.of[maker] == 0 {
			delete(t.of, maker)
		}
	}
}

// admit returns ErrTooMany if there may be no new group, or no new group of this client. The client
// "" is nobody, such as a program in this process, or everybody where nobody need show who they
// are: for it only the bound of all groups counts.
func (c *census) admit(group, by string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	refuse := func(why string) error {
		return fmt.Errorf("group %q does not exist yet: %w: %s. Delete groups that nobody needs; "+
			"one without members whose offsets nobody commits is deleted after a while", group, ErrTooMany, why)
	}
	all, own := c.found.all+c.since.all, c.found.of[by]+c.since.of[by]
	if all >= c.most {
		return refuse(fmt.Sprintf("there are %d, the limit is %d", all, c.most))
	}
	if share := max(1, (c.most-(all-own))/makersShare); by != "" && own >= share {
		return refuse(fmt.Sprintf("this client has made %d, the limit is %d: half of what other clients leave of %d", own, share, c.most))
	}
	return nil
}

// count adds groups that this process has made for a client; a negative number is of those that it
// has deleted.
func (c *census) count(maker string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since.add(maker, n)
}

// begin is called before a sweep reads the groups. The function that it returns is called with the
// groups that the sweep found.
func (c *census) begin() func(found tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := tally{c.since.all, maps.Clone(c.since.of)}
	return func(found tally) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.found = found
		c.since.take(before)
	}
}
