package cli

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// size is a flag that counts bytes: 512B, 64KiB, 10MiB, 1GB.
type size int64

// duration is a flag that counts time: 500ms, 30s, 1h30m, 7d.
type duration time.Duration

// position is a flag that names an offset, or a time to find one by.
type position struct {
	offset int64     // unused if at is set; -2 is the earliest, -1 the latest, as in the Kafka protocol
	at     time.Time // if not zero: the first record that is not older
}

const (
	earliest = -2
	latest   = -1

	sizeForms     = "a number with a unit: 512B, 64KiB, 10MiB, 2GiB (powers of 1024) or KB, MB, GB (powers of 1000)"
	durationForms = "numbers with units ms, s, m, h or d: 500ms, 30s, 1h30m, 7d"
	positionForms = "earliest, latest, an offset such as 42, a time such as 2026-01-31T08:00:00Z, or -1h for an hour ago"
)

var sizeUnits = map[string]uint64{
	"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

var durationUnits = map[string]uint64{
	"ms": uint64(time.Millisecond), "s": uint64(time.Second), "m": uint64(time.Minute),
	"h": uint64(time.Hour), "d": 24 * uint64(time.Hour),
}

// UnmarshalText parses a size.
func (s *size) UnmarshalText(text []byte) error {
	number, unit, rest := cutUnit(string(text))
	n, err := scale(number, strings.ToLower(strings.TrimSpace(unit)), sizeUnits)
	if err == nil && rest != "" {
		err = fmt.Errorf("%q is not allowed after the unit", rest)
	}
	if err != nil {
		return fmt.Errorf("%q is not a size: %w; write %s", text, err, sizeForms)
	}
	*s = size(n)
	return nil
}

// UnmarshalText parses a duration.
func (d *duration) UnmarshalText(text []byte) error {
	total := uint64(0)
	for rest, first := string(text), true; first || rest != ""; first = false {
		var number, unit string
		number, unit, rest = cutUnit(rest)
		n, err := scale(number, unit, durationUnits)
		if err == nil && total+n > math.MaxInt64 {
			err = errTooMuch
		}
		if err != nil {
			return fmt.Errorf("%q is not a duration: %w; write %s", text, err, durationForms)
		}
		total += n
	}
	*d = duration(total)
	return nil
}

// UnmarshalText parses a position. A duration such as -1h is counted from now.
func (p *position) UnmarshalText(text []byte) error {
	word := string(text)
	switch word {
	case "earliest":
		*p = position{offset: earliest}
		return nil
	case "latest":
		*p = position{offset: latest}
		return nil
	}
	if n, err := strconv.ParseInt(word, 10, 64); err == nil && n >= 0 {
		*p = position{offset: n}
		return nil
	}
	if at, err := time.Parse(time.RFC3339, word); err == nil {
		*p = since(at)
		return nil
	}
	if ago, ok := strings.CutPrefix(word, "-"); ok {
		var d duration
		if err := d.UnmarshalText([]byte(ago)); err == nil {
			*p = since(time.Now().Add(-time.Duration(d)))
			return nil
		}
	}
	return fmt.Errorf("%q is not a position; write %s", word, positionForms)
}

// since is the position of a time. No record is older than 1970, and the Kafka protocol has its own
// meanings for times below 0.
func since(at time.Time) position {
	if at.UnixMilli() < 0 {
		return position{offset: earliest}
	}
	return position{at: at}
}

// exact reports whether the position is an offset.
func (p position) exact() bool { return p.at.IsZero() && p.offset >= 0 }

func (p position) String() string {
	switch {
	case !p.at.IsZero():
		return p.at.UTC().Format(time.RFC3339)
	case p.offset == earliest:
		return "earliest"
	case p.offset == latest:
		return "latest"
	}
	return strconv.FormatInt(p.offset, 10)
}

// cutUnit cuts "1h30m" into "1", "h" and "30m".
func cutUnit(text string) (number, unit, rest string) {
	isDigit := func(r rune) bool { return r >= '0' && r <= '9' }
	end := strings.IndexFunc(text, func(r rune) bool { return !isDigit(r) })
	if end < 0 {
		return text, "", ""
	}
	number, unit = text[:end], text[end:]
	if next := strings.IndexFunc(unit, isDigit); next >= 0 {
		unit, rest = unit[:next], unit[next:]
	}
	return number, unit, rest
}

var errTooMuch = fmt.Errorf("it is too large: it must be below 2^63")

// scale multiplies a number by its unit, within an int64.
func scale(number, unit string, units map[string]uint64) (uint64, error) {
	factor, known := units[unit]
	switch {
	case number == "" && strings.HasPrefix(unit, "-"):
		return 0, fmt.Errorf("it may not be negative")
	case number == "":
		return 0, fmt.Errorf("a number is missing")
	case unit == "" && strings.Trim(number, "0") == "":
		return 0, nil // 0 is 0 in every unit
	case unit == "":
		return 0, fmt.Errorf("the unit is missing")
	case !known:
		return 0, fmt.Errorf("%q is not a unit", unit)
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, errTooMuch
	}
	high, product := bits.Mul64(n, factor)
	if high != 0 || product > math.MaxInt64 {
		return 0, errTooMuch
	}
	return product, nil
}
