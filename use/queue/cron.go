package queue

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	parser "github.com/netresearch/go-cron"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

// cronMax and zoneMax bound the text of an expression and of a time zone's name, in bytes.
const (
	cronMax = 200
	zoneMax = 100
	// cronYears is how far ahead a tick is looked for: from one 29 February to the next it may be
	// eight years.
	cronYears = 10
	allHours  = 1<<24 - 1 // in the parser's form: one bit for each hour
)

// cronNames stand for expressions of five fields. The parser knows them.
var cronNames = []string{"@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually"}

// cron is an expression in a time zone. A tick is a time on the zone's clock that the expression
// allows. Where that clock is set forward or back:
//
//	02:00 → 03:00   a tick at 02:30, which the clock skips, comes at 03:30: as long after the tick before as on any other day
//	03:00 → 02:00   a tick at 02:30, which the clock shows twice, comes the first time; both times where every hour is allowed
//
// So ticks of fixed hours come once a day and hourly ones stay an hour apart, as cron(8) of Vixie
// cron and cronie says. But Vixie cron and cronie run skipped ticks immediately.
type cron struct {
	expression *parser.SpecSchedule
	zone       *time.Location
	everyHour  bool
}

// cronPart is what a field may have between its commas, hyphens and slashes. The parser knows more
// (L, W, #, H), for which crontab(5) has no rule.
var cronPart = regexp.MustCompile(`^(\*|\?|[0-9]+|[A-Za-z]{3,})$`)

// anyDay marks a field in the parser's form: days must match both fields. The parser calls it
// starBit.
const anyDay = 1 << 63

// parseCron reads five fields: minute, hour, day of the month, month, day of the week; or one of
// cronNames. A zone in the expression, and @every, are refused.
//
// A day must match the day of the month or the day of the week. If one of these fields begins with
// *, it must match both: so do Vixie cron and cronie, which look at the first character only
// (DOM_STAR and DOW_STAR in entry.c and cron.c). So "*/2" with MON is every second day that is a
// Monday, and "1,*" with MON is every day.
func parseCron(expression, zone string) (c cron, err error) {
	bad := func(why string, a ...any) (cron, error) {
		return cron{}, &eventlog.InvalidError{What: "cron expression", Value: shorten(expression, 64), Why: fmt.Sprintf(why, a...)}
	}
	if len(expression) > cronMax {
		return bad("it has %d bytes; at most %d are allowed", len(expression), cronMax)
	}
	fields := strings.Fields(expression)
	if len(fields) != 5 && !(len(fields) == 1 && slices.Contains(cronNames, fields[0])) {
		return bad("five fields are needed: minute, hour, day of the month, month and day of the week, as in \"30 8 * * MON-FRI\", or one of %s", strings.Join(cronNames, ", "))
	}
	for _, f := range fields {
		if f[0] == '@' {
			break
		}
		for _, part := range strings.FieldsFunc(f, func(r rune) bool { return r == ',' || r == '-' || r == '/' }) {
			if !cronPart.MatchString(part) {
				return bad("%q is not understood; a field has numbers, names such as MON or JAN, and the signs * , - /", shorten(part, 16))
			}
		}
	}
	p := parser.MustNewParser(parser.Minute | parser.Hour | parser.Dom | parser.Month | parser.Dow | parser.DowOrDom | parser.Descriptor).WithMaxSearchYears(cronYears)
	parsed, err := p.Parse(strings.ToLower(strings.Join(fields, " "))) // in capitals the parser takes the H of THU for the H of Jenkins
	if err != nil {
		return bad("%v", err)
	}
	c.expression = parsed.(*parser.SpecSchedule) // only @every gives another type
	if len(fields) == 5 {
		c.expression.Dom = markDays(c.expression.Dom, fields[2])
		c.expression.Dow = markDays(c.expression.Dow, fields[4])
	}
	c.everyHour = c.expression.Hour&allHours == allHours
	// The machine's zone is refused: it may be different in each process.
	if c.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" || len(zone) > zoneMax {
		return cron{}, &eventlog.InvalidError{What: "time zone", Value: shorten(zone, 64), Why: "it is not a name in this process's IANA time zone database; write a name such as Europe/Berlin or UTC"}
	}
	return c, nil
}

// markDays sets anyDay in a field's parsed form if its text begins with *.
func markDays(parsed uint64, text string) uint64 {
	if text[0] == '*' || text[0] == '?' {
		return parsed | anyDay
	}
	return parsed &^ anyDay
}

// next is the first tick after a moment; 0: there is none. It goes from one change of the zone's
// clock to the next. Between two changes the clock runs evenly, so the parser searches in UTC,
// where no clock is ever set: in a zone that skips a midnight the parser would find wrong ticks.
func (c cron) next(after claims.Time) claims.Time {
	last := after + claims.Time(cronYears*366*24*time.Hour/time.Millisecond)
	for after < last {
		at := time.UnixMilli(int64(after + 1)).In(c.zone)
		start, end := at.ZoneBounds()
		offset, begun := offsetOf(at), claims.Time(start.UnixMilli())
		before := offset
		if !start.IsZero() {
			before = offsetOf(start.Add(-1))
		}
		// At begun the clock went from begun+before to begun+offset.
		from := after + offset
		if before > offset && !c.everyHour {
			from = max(from, begun+before-1) // times that the clock shows for the second time do not count
		}
		tick := c.onClock(from)
		if tick == 0 {
			return 0
		}
		tick -= offset
		if before < offset && after+before < begun+offset-1 { // ticks that the clock skipped come as if it had not been set
			if left := c.onClock(max(after, begun-1) + before); left != 0 && left < begun+offset {
				tick = min(tick, left-before)
			}
		}
		if end.IsZero() || tick < claims.Time(end.UnixMilli()) {
			return tick
		}
		after = claims.Time(end.UnixMilli()) - 1
	}
	return 0
}

// onClock returns the first time after another that the expression allows; 0: there is none. Both
// are on a clock that is never set.
func (c cron) onClock(after claims.Time) claims.Time {
	t := c.expression.Next(time.UnixMilli(int64(after)).UTC())
	if t.IsZero() {
		return 0
	}
	return claims.Time(t.UnixMilli())
}

// offsetOf is how far the zone's clock is ahead of UTC.
func offsetOf(t time.Time) claims.Time {
	_, seconds := t.Zone()
	return claims.Time(seconds) * 1000
}

// latest returns the last tick that is not after now. first is a tick that is not after now.
func (c cron) latest(first, now claims.Time) claims.Time {
	from, to := first-1, now // there is a tick in (from, now], and none in (to, now]
	for from+1 < to {
		middle := from + (to-from)/2
		if t := c.next(middle); t != 0 && t <= now {
			from = middle
		} else {
			to = middle
		}
	}
	return c.next(from)
}
