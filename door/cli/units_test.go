package cli

import (
	"strings"
	"testing"
	"time"
)

func TestSizesNeedUnits(t *testing.T) {
	for text, want := range map[string]size{
		"0": 0, "1B": 1, "10MiB": 10 << 20, "10 MB": 10e6, "2gib": 2 << 30, "1TB": 1e12, "7EB": -1,
		"10": -1, "": -1, "-1MiB": -1, "1.5GiB": -1, "10M": -1, "MiB": -1, "1MiB2": -1, "9999999999GiB": -1,
		"99999999999999999999B": -1, "0x10B": -1,
	} {
		var s size
		err := s.UnmarshalText([]byte(text))
		if want >= 0 && (err != nil || s != want) {
			t.Errorf("%q: %d, %v; want %d", text, s, err, want)
		}
		if want < 0 && (err == nil || !strings.Contains(err.Error(), sizeForms)) {
			t.Errorf("%q: %d, %v; want an error that names the forms", text, s, err)
		}
	}
}

func TestDurationsNeedUnits(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour,
		"10": -1, "1h30": -1, "-1s": -1, "1e9s": -1, "": -1, "h": -1, "1 h": -1, "106752d": -1, "106751d24h": -1, "1y": -1,
	} {
		var d duration
		err := d.UnmarshalText([]byte(text))
		if want >= 0 && (err != nil || time.Duration(d) != want) {
			t.Errorf("%q: %s, %v; want %s", text, time.Duration(d), err, want)
		}
		if want < 0 && (err == nil || !strings.Contains(err.Error(), durationForms)) {
			t.Errorf("%q: %s, %v; want an error that names the forms", text, time.Duration(d), err)
		}
	}
}

func TestPositionsAreOffsetsTimesAndWords(t *testing.T) {
	for text, want := range map[string]string{
		"earliest": "earliest", "latest": "latest", "42": "42", "0": "0", "2026-01-31T08:00:00Z": "2026-01-31T08:00:00Z",
		"2026-01-31T09:00:00+01:00": "2026-01-31T08:00:00Z",
	} {
		var p position
		if err := p.UnmarshalText([]byte(text)); err != nil || p.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, p, err, want)
		}
	}
	var ago position
	if err := ago.UnmarshalText([]byte("-1h")); err != nil || time.Since(ago.at).Round(time.Minute) != time.Hour {
		t.Errorf("-1h: %s, %v; want an hour ago", ago, err)
	}
	for _, text := range []string{"", "yesterday", "-1", "-5x", "2026-01-31", "1h", "9223372036854775808", "Earliest"} {
		var p position
		if err := p.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), positionForms) {
			t.Errorf("%q: %s, %v; want an error that names the forms", text, p, err)
		}
	}
}
