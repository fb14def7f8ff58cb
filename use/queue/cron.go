package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	parser "github.com/netresearch/go-cron"

	"github.com/weir-log/weir/eventlog"
)

// cronMax and zoneMax bound the text of an expression and of a time zone's name, in bytes.
const (
	cronMax = 200
	zoneMax = 100
	// cronYears is how far ahead a tick is looked for: from one 29 February to the next it may be eight years.
	cronYears = 10
)

// cronNames stand for expressions of five fields. The parser knows them.
var cronNames = []string{"@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually"}

// cron is an expression in a time zone. What daylight saving does to it is the parser's: cron_test.go says what that is.
type cron struct {
	expression parser.Schedule
	zone       *time.Location
}

// parseCron reads five fields: minute, hour, day of the month, month, day of the week; or one of cronNames. As in Vixie cron a day has to be right by
// the month or by the week where both are restricted. A zone in the expression, and @every, are refused.
func parseCron(expression, zone string) (c cron, err error) {
	bad := func(why string, a ...any) (cron, error) {
		return cron{}, &eventlog.InvalidError{What: "cron expression", Value: shorten(expression, 64), Why: fmt.Sprintf(why, a...)}
	}
	if len(expression) > cronMax {
		return bad("it has %d bytes, and %d are allowed", len(expression), cronMax)
	}
	fields := strings.Fields(expression)
	if len(fields) != 5 && !(len(fields) == 1 && slices.Contains(cronNames, fields[0])) {
		return bad("five fields are needed, minute, hour, day of the month, month and day of the week, as in \"30 8 * * MON-FRI\", or one of %s", strings.Join(cronNames, ", "))
	}
	p := parser.MustNewParser(parser.Minute | parser.Hour | parser.Dom | parser.Month | parser.Dow | parser.DowOrDom | parser.Descriptor).WithMaxSearchYears(cronYears)
	if c.expression, err = p.Parse(strings.Join(fields, " ")); err != nil {
		return bad("%v", err)
	}
	// The machine's zone is no choice: it may be another one in each process.
	if c.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" || len(zone) > zoneMax {
		return cron{}, &eventlog.InvalidError{What: "time zone", Value: shorten(zone, 64), Why: "it is no name of the IANA time zone database that this process has, as Europe/Berlin or UTC"}
	}
	return c, nil
}

// next is the first tick after a moment; 0: there is none.
func (c cron) next(after Time) Time {
	t := c.expression.Next(time.UnixMilli(int64(after)).In(c.zone))
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMilli())
}

// latest is the last tick that is not after now, where first is one that is not.
func (c cron) latest(first, now Time) Time {
	from, to := first-1, now // there is a tick in (from, now], and none in (to, now]
	for from+1 < to {
		middle := from + (to-from)/2
		if t := c.next(middle); t != 0 && t <= now {
			from = middle
		} else {
			to = middle
		}
	}
	if t := c.next(from); t >= first && t <= now {
		return t
	}
	return first // the parser does not find every tick from each moment of a day whose clock changes
}
