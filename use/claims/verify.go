package claims

import (
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// Verify returns how the state of a partition contradicts itself, or contradicts end, which is the
// partition's end and was read after the state; "": it does not. States that Decode refuses do not
// get here.
func (p *Part) Verify(end eventlog.Offset) string {
	if p.Floor < 0 {
		return fmt.Sprintf("its floor in partition %d is %d, which is below 0", p.Partition, p.Floor)
	}
	if p.Next > end {
		return fmt.Sprintf("it has messages of partition %d up to offset %d, but the partition ends at %d", p.Partition, p.Next, end)
	}
	for i, r := range p.Runs {
		switch {
		case i == 0 && r.Fate == Done:
			return fmt.Sprintf("its floor in partition %d is %d, but the messages from there on are done", p.Partition, p.Floor)
		case r.Fate == Claimed && (r.Attempt < 1 || r.Until <= 0):
			return fmt.Sprintf("the messages [%d, %d) of partition %d are claimed in attempt %d until %d", r.From, r.End(), p.Partition, r.Attempt, r.Until)
		case r.Attempt < 0:
			return fmt.Sprintf("the messages [%d, %d) of partition %d have had %d attempts", r.From, r.End(), p.Partition, r.Attempt)
		}
	}
	return ""
}
