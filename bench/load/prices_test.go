package load_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/internal/ledger"
)

const headings = "Time\tTick_Volume\tReal_Volume\tHigh\tLow\tOpen\tClose\r\n"

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "MACD.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPayloadsAreTheRowsOfAFileInTurn(t *testing.T) {
	file := write(t, headings+"2023.02.28 23:59:00\t2\t0\t1.058\t1.0579\t1.0579\t1.058\r\n2023.02.28 23:58:00\t1\t7\t-1.5\t1\t2e-3\t1.0579")
	prices, err := load.ReadPrices(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []load.Price{
		{Time: "2023-02-28T23:59:00", TickVolume: 2, High: 1.058, Low: 1.0579, Open: 1.0579, Close: 1.058},
		{Time: "2023-02-28T23:58:00", TickVolume: 1, RealVolume: 7, High: -1.5, Low: 1, Open: 0.002, Close: 1.0579},
	}
	for seq := range uint64(4) {
		stamp := ledger.Stamp{Run: 1, Seq: seq}
		payload := prices.Payload(stamp)
		var is load.Price
		if err := json.Unmarshal(payload, &is); err != nil || is != want[seq%2] {
			t.Errorf("event %d is %+v, %v", seq, is, err)
		}
		if s, err := load.Read(payload); err != nil || s.Seq != seq {
			t.Errorf("the stamp of event %d is %+v, %v", seq, s, err)
		}
	}
	if again, err := prices.Again(); err != nil || again.SHA256 != prices.SHA256 {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte(headings+"2023.02.28 23:59:00\t2\t0\t1\t1\t1\t1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prices.Again(); err == nil || !strings.Contains(err.Error(), "another file than it was") {
		t.Error(err)
	}
}

func TestAFileOfPricesIsRefusedByItsLine(t *testing.T) {
	const row = "2023.02.28 23:59:00\t2\t0\t1.058\t1.0579\t1.0579\t1.058\n"
	for text, says := range map[string]string{
		"":        "no row after",
		headings:  "no row after",
		row + row: "line 1: it is a row; headings were expected, such as Time, Tick_Volume",
		headings + row + "2023.02.28 23:58:00\t2\t0\t1\t1\t1\n": "line 3: it has 6 columns; 7 with tabs between were expected: Time,",
		headings + row + "\n": "line 3: it has 1 columns",
		headings + row + row + "2023-02-28T23:58:00\t2\t0\t1\t1\t1\t1\n": `line 4: Time is "2023-02-28T23:58:00"; a time such as 2023.02.28 23:59:00 was expected`,
		headings + "2023.02.28 23:58:00\t2.5\t0\t1\t1\t1\t1\n":           `line 2: Tick_Volume is "2.5"; a whole number was expected`,
		headings + "2023.02.28 23:58:00\t2\tx\t1\t1\t1\t1\n":             `line 2: Real_Volume is "x"`,
		headings + "2023.02.28 23:58:00\t2\t0\t1,058\t1\t1\t1\n":         `line 2: High is "1,058"; a number such as 1.0579 was expected`,
		headings + "2023.02.28 23:58:00\t2\t0\t1\t1\t1\tNaN\n":           `line 2: Close is "NaN"; a number`,
	} {
		file := write(t, text)
		if _, err := load.ReadPrices(file); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v; it should say %q", text, err, says)
		}
	}
	if _, err := load.ReadPrices(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is read")
	}
}
