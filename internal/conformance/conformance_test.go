package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A subtest that the list excuses.
func init() { needs["TestGroupSimple/848"] = "KIP-848" }

const events = `not of the tests
{"Action":"start"}
{"Action":"run","Test":"TestGroupSimple"}
{"Action":"run","Test":"TestGroupSimple/classic"}
{"Action":"run","Test":"TestGroupSimple/848"}
{"Action":"output","Test":"TestGroupSimple/848","Output":"broker does not support KIP-848\n"}
{"Action":"skip","Test":"TestGroupSimple/848","Elapsed":0}
{"Action":"pass","Test":"TestGroupSimple/classic","Elapsed":0.1}
{"Action":"pass","Test":"TestGroupSimple","Elapsed":0.1}
{"Action":"run","Test":"TestPing"}
{"Action":"skip","Test":"TestPing","Elapsed":0}
{"Action":"run","Test":"TestIssue1034"}
{"Action":"run","Test":"TestRing"}
{"Action":"pass","Test":"TestRing","Elapsed":0}
{"Action":"fail","Elapsed":9}
`

func readEvents(t *testing.T) result {
	t.Helper()
	r := result{on: "memory", tests: map[string]verdict{}}
	var log bytes.Buffer
	if err := r.read(strings.NewReader(events), &log); err != nil {
		t.Fatal(err)
	}
	if log.String() != "broker does not support KIP-848\n" {
		t.Errorf("the tests' own output is %q", log.String())
	}
	return r
}

func TestWhatNobodyExcusedIsBad(t *testing.T) {
	var out strings.Builder
	bad := summarize(&out, []result{readEvents(t)})
	if bad != 2 || !strings.Contains(out.String(), "TestPing: skip") || !strings.Contains(out.String(), "TestIssue1034: unfinished") {
		t.Errorf("%d are bad:\n%s", bad, out.String())
	}
}

func TestExcusedTestThatFailsIsBad(t *testing.T) {
	r := result{tests: map[string]verdict{"TestTxnEtl": failed, "TestShareGroup": skips}}
	if bad := summarize(io.Discard, []result{r}); bad != 1 {
		t.Errorf("%d are bad", bad)
	}
}

func TestDocumentSaysWhy(t *testing.T) {
	s := &suite{speaks: map[string]bool{"TestGroupSimple": true, "TestPing": true, "TestIssue1034": true, "TestRing": false}}
	rows, alone := tests(s, []result{readEvents(t)})
	if got := strings.Join(rows, " "); got != "TestGroupSimple TestGroupSimple/848 TestGroupSimple/classic TestIssue1034 TestPing" {
		t.Errorf("rows: %s", got)
	}
	if got := strings.Join(alone, " "); got != "TestRing" {
		t.Errorf("tests of the client alone: %s", got)
	}
	r := readEvents(t)
	for test, want := range map[string]string{
		"TestGroupSimple": "pass", "TestGroupSimple/848": "skipped: KIP-848", "TestPing": "**skip**", "TestIssue1034": "**unfinished**", "TestTxnEtl": "–",
	} {
		if got := cell(test, r); got != want {
			t.Errorf("%s: %s", test, got)
		}
	}
}

func TestSpeakersAreToldFromTestsOfTheClientAlone(t *testing.T) {
	s, err := fetchSuite(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for test, want := range map[string]bool{"TestPing": true, "TestGroupETL": true, "TestTxnEtl": true, "TestRing": false, "TestAppendSumIsMonotonic": false, "TestRecordReader": false} {
		if got, known := s.speaks[test]; !known || got != want {
			t.Errorf("%s: speaks %v, known %v", test, got, known)
		}
	}
	for test := range needs {
		if top, _, _ := strings.Cut(test, "/"); !s.speaks[top] {
			t.Errorf("%s is excused, but is no test that speaks to the broker", test)
		}
	}
}
