package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/doctor"
)

func TestColoursAreForTerminalsWhoseUserWantsThem(t *testing.T) {
	for _, c := range []struct {
		isTTY   bool
		environ string
		shows   bool
	}{
		{true, "", true}, {true, "NO_COLOR=", true}, // empty: not set, says no-color.org
		{true, "NO_COLOR=1", false}, {true, "TERM=dumb", false}, {true, "TERM=xterm", true}, {false, "", false},
	} {
		var out bytes.Buffer
		if err := table(inColour(&out, c.isTTY, []string{"HOME=/", c.environ}), "NAME SIZE", [][]string{{"orders", "7"}}); err != nil {
			t.Fatal(err)
		}
		want := "NAME    SIZE\norders  7\n"
		if c.shows {
			want = "\x1b[1mNAME    SIZE\x1b[0m\norders  7\n"
		}
		if out.String() != want {
			t.Errorf("a terminal: %v, %q: %q, want %q", c.isTTY, c.environ, out.String(), want)
		}
	}
}

func TestWhatIsBadIsRed(t *testing.T) {
	var out bytes.Buffer
	c := &doctorCmd{Output: "text"}
	findings := []doctor.Finding{{Name: "a", Value: "1"}, {Name: "b", Value: "2", Level: doctor.Warn}, {Name: "c", Value: "3", Level: doctor.Bad}}
	if err := c.print(&terminal{out: inColour(&out, true, nil)}, findings); err != nil {
		t.Fatal(err)
	}
	want := []string{"\x1b[1mLEVEL  CHECK  VALUE\x1b[0m", "ok     a      1", "\x1b[33mwarn   b      2\x1b[0m", "\x1b[31mbad    c      3\x1b[0m"}
	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	if report(t.Context(), inColour(&out, true, nil), errors.New("no luck")) != exitFailed || !strings.HasPrefix(out.String(), "\x1b[31mweir:\x1b[0m no luck") {
		t.Errorf("an error: %q", out.String())
	}
}
