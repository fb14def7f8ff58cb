package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/claims"
)

// Clocks that are set forward at midnight (the first four), at another hour, by half an hour (Lord
// Howe), and never.
var cronZones = []string{"Africa/Cairo", "Asia/Beirut", "America/Havana", "America/Santiago", "Europe/Berlin", "Australia/Lord_Howe", "America/Nuuk", "Asia/Kolkata", "UTC"}

func TestTicksAroundAMidnightThatTheZoneLeavesOut(t *testing.T) {
	for _, c := range []struct{ cron, zone, after, want string }{
		{"@daily", "Africa/Cairo", "2026-04-23T00:00:00+02:00", "2026-04-24T01:00:00+03:00 2026-04-25T00:00:00+03:00"},
		{"30 0 * * *", "Africa/Cairo", "2026-04-23T01:00:00+02:00", "2026-04-24T01:30:00+03:00 2026-04-25T00:30:00+03:00"},
		{"0 9 * * THU", "Africa/Cairo", "2026-04-23T08:59:00+02:00", "2026-04-23T09:00:00+02:00 2026-04-30T09:00:00+03:00"},
		{"@weekly", "America/Santiago", "2026-09-05T00:00:00-04:00", "2026-09-06T01:00:00-03:00 2026-09-13T00:00:00-03:00"},
		{"30 0 * * *", "America/Havana", "2026-03-07T12:00:00-05:00", "2026-03-08T01:30:00-04:00 2026-03-09T00:30:00-04:00"},
		{"@hourly", "Asia/Beirut", "2026-03-28T22:30:00+02:00", "2026-03-28T23:00:00+02:00 2026-03-29T01:00:00+03:00 2026-03-29T02:00:00+03:00"},
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", "2026-10-04T02:45:00+11:00 2026-10-05T02:15:00+11:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"30 * * * *", "Europe/Berlin", "2026-10-25T01:45:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-25T03:30:00+01:00"},
	} {
		cr, err := parseCron(c.cron, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		at := claims.Time(after.UnixMilli())
		for range strings.Fields(c.want) {
			at = cr.next(at)
			got = append(got, time.UnixMilli(int64(at)).In(cr.zone).Format(time.RFC3339))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s in %s after %s: %v, want %v", c.cron, c.zone, c.after, got, c.want)
		}
	}
}

// fields are what an expression allows, and its text.
type fields struct {
	minute, hour, day, month, weekday []int // nil: all
	text                              string
}

func randomFields(r *rand.Rand) fields {
	pick := func(from, to, most int) (some []int, text string) {
		if r.IntN(3) == 0 {
			return nil, "*"
		}
		var all []string
		for range 1 + r.IntN(most) {
			n := from + r.IntN(to-from+1)
			some, all = append(some, n), append(all, fmt.Sprint(n))
		}
		return some, strings.Join(all, ",")
	}
	var f fields
	var text [5]string
	f.minute, text[0] = pick(0, 59, 3)
	if f.hour, text[1] = pick(0, 4, 3); r.IntN(4) == 0 {
		f.hour, text[1] = pick(0, 23, 4)
	}
	f.day, text[2] = pick(1, 31, 5)
	f.month, text[3] = pick(1, 12, 8)
	f.weekday, text[4] = pick(0, 6, 3)
	f.text = strings.Join(text[:], " ")
	return f
}

// allow tells whether the expression allows a time on a clock, given as if it were in UTC.
func (f fields) allow(t time.Time) bool {
	has := func(some []int, n int) bool { return some == nil || slices.Contains(some, n) }
	day, weekday := has(f.day, t.Day()), has(f.weekday, int(t.Weekday()))
	days := day && weekday
	if f.day != nil && f.weekday != nil {
		days = day || weekday
	}
	return days && has(f.minute, t.Minute()) && has(f.hour, t.Hour()) && has(f.month, int(t.Month()))
}

// walk finds the ticks in [from, to) by looking at the zone's clock every minute. It starts three
// hours earlier, for where a clock is set back before from, from is in an hour that it shows again.
func (f fields) walk(zone *time.Location, from, to time.Time) (ticks []claims.Time) {
	shown := func(t time.Time) int64 { // in minutes
		_, offset := t.In(zone).Zone()
		return (t.Unix() + int64(offset)) / 60
	}
	clock := func(minutes int64) time.Time { return time.Unix(minutes*60, 0).UTC() }
	start := from.Add(-3 * time.Hour)
	latest, due := shown(start)-1, make(map[int64]bool)
	for t := start; t.Before(to); t = t.Add(time.Minute) {
		now := shown(t)
		for left := latest + 1; left < now; left++ { // the clock left it out
			due[t.Unix()/60+left-latest-1] = f.allow(clock(left))
		}
		allowed := due[t.Unix()/60] || f.allow(clock(now)) && (now > latest || f.hour == nil)
		if allowed && !t.Before(from) {
			ticks = append(ticks, claims.Time(t.UnixMilli()))
		}
		latest = max(latest, now)
	}
	return ticks
}

func TestTicksAreThoseOfAWalkThroughEveryMinute(t *testing.T) {
	r := seed.Random(t)
	for range 60 {
		f, name := randomFields(r), cronZones[r.IntN(len(cronZones))]
		c, err := parseCron(f.text, name)
		if err != nil {
			t.Fatal(err)
		}
		// Around a change of the clock, where there is one.
		from := time.Date(2026+r.IntN(8), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), 0, 0, 0, time.UTC)
		if _, change := from.In(c.zone).ZoneBounds(); !change.IsZero() {
			from = change.UTC().Add(-time.Duration(r.IntN(72)) * time.Hour).Truncate(time.Hour)
		}
		to := from.Add(6 * 24 * time.Hour)
		want := f.walk(c.zone, from, to)
		var got []claims.Time
		for at := c.next(claims.Time(from.UnixMilli()) - 1); at != 0 && at < claims.Time(to.UnixMilli()); at = c.next(at) {
			got = append(got, at)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q in %s from %v: %v, want %v", f.text, name, from, texts(got), texts(want))
		}
		if len(want) > 1 {
			first, now := want[0], claims.Time(from.UnixMilli()+r.Int64N(to.Sub(from).Milliseconds()))
			last := first
			for _, at := range want {
				if at <= now {
					last = at
				}
			}
			if now >= first && c.latest(first, now) != last {
				t.Fatalf("%q in %s: the latest tick of %v is %v", f.text, name, texts([]claims.Time{first, now, last}), texts([]claims.Time{c.latest(first, now)}))
			}
		}
	}
}

func texts(all []claims.Time) (out []string) {
	for _, at := range all {
		out = append(out, time.UnixMilli(int64(at)).UTC().Format(time.RFC3339))
	}
	return out
}

// crontab(5): "If both fields are restricted (i.e., do not contain the "*" character), the command
// will be run when either field matches the current time." Vixie cron and cronie take a field that
// begins with * for one that is not restricted (entry.c: if (ch == '*') e->flags |= DOM_STAR).
func TestDaysAreThoseOfCrontab(t *testing.T) {
	odd := func(d time.Time) bool { return d.Day()%2 == 1 }
	monday := func(d time.Time) bool { return d.Weekday() == time.Monday }
	all := func(time.Time) bool { return true }
	for text, want := range map[string]func(d time.Time) bool{
		"0 0 * * *":        all,
		"0 0 * * MON":      monday,
		"0 0 13 * *":       func(d time.Time) bool { return d.Day() == 13 },
		"0 0 13 * MON":     func(d time.Time) bool { return d.Day() == 13 || monday(d) },
		"0 0 1-31/2 * MON": func(d time.Time) bool { return odd(d) || monday(d) },
		"0 0 */2 * MON":    func(d time.Time) bool { return odd(d) && monday(d) },
		"0 0 */2 * *":      odd,
		"0 0 */2,2 * MON":  func(d time.Time) bool { return (odd(d) || d.Day() == 2) && monday(d) },
		"0 0 2,*/2 * MON":  func(d time.Time) bool { return odd(d) || d.Day() == 2 || monday(d) },
		"0 0 1,* * MON":    all,
		"0 0 *,1 * MON":    monday,
		"0 0 13 * */2":     func(d time.Time) bool { return d.Day() == 13 && d.Weekday()%2 == 0 },
		"0 0 13 * 0-6/2":   func(d time.Time) bool { return d.Day() == 13 || d.Weekday()%2 == 0 },
		"0 0 */2 * */2":    func(d time.Time) bool { return odd(d) && d.Weekday()%2 == 0 },
		"0 0 13 * 7":       func(d time.Time) bool { return d.Day() == 13 || d.Weekday() == time.Sunday },
		"0 0 13 * sun,Mon": func(d time.Time) bool { return d.Day() == 13 || d.Weekday() <= time.Monday },
		"0 0 10-12 FEB FRI": func(d time.Time) bool {
			return d.Month() == time.February && (d.Day() >= 10 && d.Day() <= 12 || d.Weekday() == time.Friday)
		},
		"0 0 */10 JAN,FEB */6": func(d time.Time) bool { return d.Month() <= time.February && d.Day()%10 == 1 && d.Weekday()%6 == 0 },
	} {
		c, err := parseCron(text, "UTC")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		at := claims.Time(start.UnixMilli()) - 1
		for d := start; d.Year() == 2026; d = d.AddDate(0, 0, 1) {
			if !want(d) {
				continue
			}
			if at = c.next(at); at != claims.Time(d.UnixMilli()) {
				t.Errorf("%s: after the earlier ticks comes %v, want %v", text, texts([]claims.Time{at}), d)
				break
			}
		}
	}
}

func TestWhatCrontabDoesNotHaveIsRefusedInOurWords(t *testing.T) {
	for _, text := range []string{"0 0 L * *", "0 0 LW * *", "0 0 15W * *", "0 0 L-3 * *", "0 0 * * 5L", "0 0 * * FRI#3", "0 0 * * MON#L", "H 0 * * *", "H(1-5) 0 * * *"} {
		_, err := parseCron(text, "UTC")
		if err == nil || !strings.Contains(err.Error(), "is not understood; a field has numbers") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
