package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAStreamFromItsCategoryToItsEnd(t *testing.T) {
	for _, store := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")} {
		s := queueServer(t, "--store", store)
		weir(t, "", "stream", "category", "list").want(t, exitOK)
		weir(t, "", "stream", "category", "create", "order", "--partitions", "2", "--keep-events", "1000", "--keep-for", "90d", "--config", "max.message.bytes=2000000").want(t, exitOK, "created category order")
		weir(t, "", "stream", "category", "create", "order").want(t, exitFailed, "exists", "--if-not-exists")
		weir(t, "", "stream", "category", "create", "order", "--if-not-exists").want(t, exitOK, "already exists")
		weir(t, "", "stream", "category", "create", "a/b").want(t, exitUsage, "invalid topic name")
		weir(t, "", "stream", "category", "list").want(t, exitOK, "order\n")
		weir(t, "", "stream", "category", "list", "--output", "json").want(t, exitOK, `"order"`)

		weir(t, `{"item":"teapot"}`+"\n", "stream", "append", "order", "eu/47 11", "--type", "Placed", "--id", "1", "--expect", "none").want(t, exitOK, "1 event appended; the stream is at version 1 after it")
		weir(t, `{"item":"teapot"}`+"\n", "stream", "append", "order", "eu/47 11", "--type", "Placed", "--id", "1", "--expect", "none").want(t, exitOK, "1 event already appended before; the stream was at version 1 after it")
		weir(t, "other", "stream", "append", "order", "eu/47 11", "--type", "Placed", "--id", "1", "--expect", "none").want(t, exitFailed, "append 1 event to stream", "other content")
		weir(t, `{"type":"Paid","value":{"n":1}}`+"\n\n"+`{"type":"Sent","value_b64":"/w=="}`, "stream", "append", "order", "eu/47 11", "--input", "json", "--expect", "1").want(t, exitOK, "2 events appended; the stream is at version 3 after them")
		weir(t, "x", "stream", "append", "order", "eu/47 11", "--type", "t", "--expect", "1").want(t, exitFailed, "version 3", "weir stream read")
		weir(t, "x", "stream", "append", "order", "eu/47 11", "--type", "t", "--expect", "none").want(t, exitFailed, "version 3")
		weir(t, "x", "stream", "append", "order", "none", "--type", "t", "--expect", "exists").want(t, exitFailed, "does not exist")
		weir(t, "\xff", "stream", "append", "order", "b", "--type", "t", "--expect", "any").want(t, exitOK, "1 event appended")

		weir(t, `{"type":"t","value":{"n":1e400},"timestamp":0}`, "stream", "append", "order", "first", "--input", "json").want(t, exitOK, "1 event appended")
		weir(t, "", "stream", "read", "order", "first").want(t, exitOK, "0\t1970-01-01T00:00:00Z\tt\t{\"n\":1e400}\n")
		weir(t, "", "stream", "delete", "order", "first", "--yes").want(t, exitOK)

		r := weir(t, "", "stream", "read", "order", "eu/47 11")
		r.want(t, exitOK, "0\t", "\tPlaced\t{\"item\":\"teapot\"}\n", "\tPaid\t{\"n\":1}\n", "2\t", "\tSent\t(bytes)\n")
		if n := strings.Count(r.out, "\n"); n != 3 {
			t.Errorf("%d lines: %s", n, r.out)
		}
		r = weir(t, "", "stream", "read", "order", "eu/47 11", "--backward", "-n", "1", "--output", "json")
		if r.want(t, exitOK, `"version":2`, `"type":"Sent"`, `"value_b64":"/w=="`); strings.Count(r.out, "\n") != 1 {
			t.Errorf("one event is %s", r.out)
		}
		if r = weir(t, "", "stream", "read", "order", "eu/47 11", "--from", "1", "--to", "2", "--type", "Paid", "--until", "2999-01-01T00:00:00Z"); !strings.HasPrefix(r.out, "1\t") || strings.Count(r.out, "\n") != 1 {
			t.Errorf("a part is %s", r.out)
		}
		r = weir(t, "", "stream", "list", "order")
		r.want(t, exitOK, "STREAM", "eu/47 11", "open", "b ")
		weir(t, "", "stream", "list", "order", "--prefix", "eu/", "--output", "json", "-n", "1").want(t, exitOK, `{"stream":"eu/47 11","version":3,"first":0,"exists":true}`)

		weir(t, "", "stream", "snapshot", "order", "b").want(t, exitFailed, "the snapshot does not exist", "--save")
		weir(t, "\xffstate\n", "stream", "snapshot", "order", "eu/47 11", "--save", "2").want(t, exitOK, "saved the snapshot at version 2")
		if r := weir(t, "", "stream", "snapshot", "order", "eu/47 11"); r.out != "\xffstate\n" {
			t.Errorf("the snapshot is %q", r.out)
		}
		weir(t, "", "stream", "snapshot", "order", "eu/47 11", "--at", "2", "--output", "json").want(t, exitOK, `"version": 2`, `"value_b64"`)
		weir(t, "", "stream", "snapshot", "order", "eu/47 11", "--at", "1").want(t, exitFailed, "the snapshot does not exist")
		weir(t, "x", "stream", "snapshot", "order", "eu/47 11", "--save", "4").want(t, exitUsage, "version 4")

		weir(t, "", "stream", "archive", "order", "eu/47 11", "--expect", "3").want(t, exitOK, "archived stream eu/47 11")
		weir(t, "x", "stream", "append", "order", "eu/47 11", "--type", "t").want(t, exitFailed, "archived", "weir stream unarchive")
		weir(t, "", "stream", "list", "order").want(t, exitOK, "archived")
		weir(t, "", "stream", "unarchive", "order", "eu/47 11").want(t, exitOK, "unarchived")
		weir(t, "", "stream", "delete", "order", "eu/47 11").want(t, exitUsage, "is not a terminal")
		weir(t, "", "stream", "delete", "order", "eu/47 11", "--expect", "2", "--yes").want(t, exitFailed, "version 3")
		weir(t, "", "stream", "delete", "order", "eu/47 11", "--expect", "3", "--yes").want(t, exitOK, "stream eu/47 11 does not exist now")
		weir(t, "", "stream", "list", "order").want(t, exitOK, "deleted")
		weir(t, "", "stream", "delete", "order", "TYPO", "--yes").want(t, exitOK, "stream TYPO does not exist now\n")
		weir(t, "", "stream", "delete", "order", "TYPO", "--yes", "--expect", "exists").want(t, exitFailed, "does not exist")
		for _, args := range [][]string{{"read", "order", "eu/47 11"}, {"archive", "order", "never"}, {"unarchive", "order", "never"}} {
			weir(t, "", append([]string{"stream"}, args...)...).want(t, exitFailed, "the stream does not exist", "weir stream list")
		}
		for _, args := range [][]string{{"read", "none", "s"}, {"list", "none"}, {"snapshot", "none", "s"}, {"delete", "none", "s", "--yes"}} {
			weir(t, "", append([]string{"stream"}, args...)...).want(t, exitFailed, "the category does not exist", "weir stream category create")
		}
		s.stop()
		weir(t, "", "stream", "list", "order", "--timeout", "1s").want(t, exitUnreachable, "no answer from a server", "weir serve")
	}
}

func TestTagsSubjectsAndRetentionOnTheCommandLine(t *testing.T) {
	for _, store := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")} {
		s := queueServer(t, "--store", store)
		weir(t, "", "stream", "category", "create", "course").want(t, exitOK)
		weir(t, "one\ntwo\n", "stream", "append", "course", "a/b", "--type", "t", "--tag", "course:1", "--tag", "x,y").want(t, exitOK, "2 events appended")
		weir(t, `{"type":"u","value":"secret","subject":"ann","tags":["x,y"]}`, "stream", "append", "course", "s", "-i", "json").want(t, exitOK)
		weir(t, "other\n", "stream", "append", "course", "s", "--type", "t").want(t, exitOK)
		weir(t, "late\n", "stream", "append", "course", "s", "--type", "t", "--expect", "1").want(t, exitFailed)
		_, page := s.get(t, "/metrics")
		for _, text := range []string{`{category="course",outcome="appended"} 3`, `{category="course",outcome="conflict"} 1`, `{category="course",outcome="duplicate"} 0`, `{category="course",outcome="boundary"} 0`} {
			if !strings.Contains(page, "weir_stream_appends_total"+text+"\n") {
				t.Errorf("/metrics lacks %s", text)
			}
		}
		if r := weir(t, "", "stream", "tagged", "course", "course:1"); strings.Count(r.out, "\n") != 2 || !strings.HasPrefix(r.out, "a/b\t0\t") || !strings.Contains(r.out, "\tt\tone\na/b\t1\t") || !strings.HasSuffix(r.out, "\tt\ttwo\n") {
			t.Errorf("%d %s%s", r.code, r.out, r.err)
		}
		if r := weir(t, "", "stream", "tagged", "course", "course:1", "x,y", "--output", "json"); strings.Count(r.out, "\n") != 4 || !strings.Contains(r.out, "\n{\"boundary\":\"") || !strings.Contains(r.out, `"stream":"s"`) || !strings.Contains(r.out, `"tags":["course:1","x,y"]`) {
			t.Errorf("%d %s%s", r.code, r.out, r.err)
		}
		weir(t, "", "stream", "tagged", "course", "none").want(t, exitOK)
		lines := strings.Fields(weir(t, "", "stream", "tagged", "course", "seat:9", "--output", "json").out)
		var last struct{ Boundary string }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			t.Fatal(err, lines)
		}
		book := []string{"stream", "append", "course", "bookings", "--type", "t", "--tag", "seat:9", "--within", last.Boundary}
		weir(t, "ann\n", book...).want(t, exitOK, "1 event appended")
		weir(t, "bob\n", book...).want(t, exitFailed, "was appended since", "weir stream tagged")
		weir(t, "bob\n", "stream", "append", "course", "bookings", "--type", "t", "--within", "?").want(t, exitUsage)
		weir(t, "", "stream", "tagged", "course", "a", "a").want(t, exitUsage, "it occurs twice")
		weir(t, "", "stream", "tagged", "course").want(t, exitUsage, "tag")
		weir(t, "", "stream", "tagged", "none", "a").want(t, exitFailed, "the category does not exist")

		weir(t, "", "stream", "forget", "course", "ann").want(t, exitUsage, "is not a terminal")
		weir(t, "", "stream", "read", "course", "s").want(t, exitOK, "\tsecret\n")
		weir(t, "", "stream", "forget", "course", "ann", "--yes").want(t, exitOK, "category course has no data about subject ann now\n")
		weir(t, "", "stream", "read", "course", "s").want(t, exitOK, "\t(erased)\n", "\tother\n")
		weir(t, "", "stream", "tagged", "course", "x,y").want(t, exitOK, "\tu\t(erased)\n")
		weir(t, "", "stream", "forget", "course", "nobody", "--yes").want(t, exitOK)
		weir(t, "", "stream", "forget", "none", "ann", "--yes").want(t, exitFailed, "the category does not exist")

		keeps := func(says string, args ...string) {
			t.Helper()
			if r := weir(t, "", append([]string{"stream", "retention", "course"}, args...)...); r.code != exitOK || r.out != says+"\n" {
				t.Errorf("%v: %d %s%s, want %s", args, r.code, r.out, r.err, says)
			}
		}
		keeps("streams of category course keep all events")
		keeps("streams of category course keep the newest 5 events that are at most 2160h0m0s old", "--keep-events", "5", "--keep-for", "90d")
		keeps("streams of category course keep events that are at most 1h0m0s old", "--keep-for", "1h")
		keeps("streams of category course keep events that are at most 1h0m0s old")
		keeps("stream a/b keeps events that are at most 1h0m0s old, as its category says", "a/b")
		keeps("stream a/b keeps the newest 7 events", "a/b", "--keep-events", "7")
		keeps("stream a/b keeps the newest 7 events", "a/b")
		keeps("stream a/b keeps all events", "a/b", "--keep-all")
		keeps("stream a/b keeps all events", "a/b")
		keeps("stream a/b keeps what its category says", "a/b", "--inherit")
		keeps("stream a/b keeps events that are at most 1h0m0s old, as its category says", "a/b")
		keeps("streams of category course keep all events", "--keep-all")
		for _, args := range [][]string{{"a"}, {"a", "--keep-all"}, {"never", "--inherit"}} {
			weir(t, "", append([]string{"stream", "retention", "course"}, args...)...).want(t, exitFailed, "the stream does not exist", "weir stream list")
		}
		for _, args := range [][]string{nil, {"s"}, {"--keep-all"}, {"s", "--keep-all"}} {
			weir(t, "", append([]string{"stream", "retention", "none"}, args...)...).want(t, exitFailed, "the category does not exist")
		}
		s.stop()
	}
}

func TestLongStreamsAreReadAndListedWhole(t *testing.T) {
	queueServer(t, "--store", "memory:")
	weir(t, "", "stream", "category", "create", "order").want(t, exitOK)
	weir(t, strings.Repeat("x\n", 2500), "stream", "append", "order", "long", "--type", "t").want(t, exitOK, "2500 events appended")
	for _, args := range [][]string{nil, {"--output", "json"}, {"--backward"}} {
		if r := weir(t, "", append([]string{"stream", "read", "order", "long"}, args...)...); strings.Count(r.out, "\n") != 2500 {
			t.Errorf("%v: %d lines", args, strings.Count(r.out, "\n"))
		}
	}
	if r := weir(t, "", "stream", "read", "order", "long", "-n", "1200"); strings.Count(r.out, "\n") != 1200 || !strings.Contains(r.out, "\n1199\t") {
		t.Errorf("%d lines of 1200", strings.Count(r.out, "\n"))
	}
}

func TestStreamCommandLinesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		in, says string
		args     []string
	}{
		{"x", "--type", []string{"append", "c", "s"}},
		{"", "no events", []string{"append", "c", "s", "--type", "t"}},
		{"x", "leave out --type", []string{"append", "c", "s", "--type", "t", "-i", "json"}},
		{"x", "leave out --type", []string{"append", "c", "s", "--tag", "t", "-i", "json"}},
		{"", "exclude each other", []string{"retention", "c", "--keep-all", "--keep-events", "5"}},
		{"", "exclude each other", []string{"retention", "c", "s", "--inherit", "--keep-for", "5d"}},
		{"", "exclude each other", []string{"retention", "c", "s", "--inherit", "--keep-all"}},
		{"", "--inherit is for a stream", []string{"retention", "c", "--inherit"}},
		{"", "less than 0", []string{"retention", "c", "--keep-events=-1"}},
		{"a\nb", "--id is the id of one event", []string{"append", "c", "s", "--type", "t", "--id", "1"}},
		{"{", "line 1: it is not JSON", []string{"append", "c", "s", "-i", "json"}},
		{"xx", "longer than the limit", []string{"append", "c", "s", "--type", "t", "--line-limit", "1B"}},
		{strings.Repeat("x\n", 10_001), "at most 10000 events", []string{"append", "c", "s", "--type", "t"}},
		{"x", "not a version", []string{"append", "c", "s", "--type", "t", "--expect=-1"}},
		{"x", "not a version", []string{"append", "c", "s", "--type", "t", "--expect", "latest"}},
		{"", "not a version", []string{"delete", "c", "s", "--expect", "9223372036854775808", "--yes"}},
		{"", "cannot be archived", []string{"archive", "c", "s", "--expect", "none"}},
		{"", "less than 0", []string{"read", "c", "s", "--max=-1"}},
		{"", "less than 0", []string{"list", "c", "--max=-1"}},
		{"x", "--save", []string{"snapshot", "c", "s", "--save", "1", "--output", "json"}},
	} {
		weir(t, c.in, append([]string{"stream"}, c.args...)...).want(t, exitUsage, c.says)
	}
}

// A stream that is deleted and begun again between two pages is not printed as one history.
func TestAStreamThatIsDeletedWhileItIsReadIsNotReadOn(t *testing.T) {
	queueServer(t, "--store", "memory:")
	weir(t, "", "stream", "category", "create", "order").want(t, exitOK)
	for _, args := range [][]string{nil, {"--backward"}, {"--backward", "--from", "10"}} {
		name := "s" + strings.Join(args, "")
		weir(t, strings.Repeat("old\n", 2500), "stream", "append", "order", name, "--type", "t").want(t, exitOK)
		var out, errs strings.Builder
		begun := false
		again := writerFunc(func(p []byte) (int, error) {
			if !begun { // the first page is there, and the second was not asked for
				begun = true
				weir(t, "", "stream", "delete", "order", name, "--yes").want(t, exitOK)
				weir(t, "new\n", "stream", "append", "order", name, "--type", "t").want(t, exitOK, "version 2501")
			}
			return out.Write(p)
		})
		code := run(t.Context(), "test", append([]string{"stream", "read", "order", name}, args...), &terminal{in: strings.NewReader(""), out: again, err: &errs}, nil)
		if code != exitFailed || !strings.Contains(errs.String(), "deleted while the stream was read") || strings.Contains(out.String(), "new") || strings.Count(out.String(), "\n") != 1000 {
			t.Errorf("%v: exit code %d, %d lines, %s", args, code, strings.Count(out.String(), "\n"), errs.String())
		}
	}
}

// A store that was restored has an older version of the stream than the page before.
func TestAStreamThatGoesBackIsNotReadOn(t *testing.T) {
	pages := []string{`{"version":3,"first":0,"next":1,"events":[{"version":0,"type":"t","value":"a"}]}`, `{"version":2,"first":0,"events":[{"version":1,"type":"t","value":"b"}]}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, pages[0])
		pages = pages[1:]
	}))
	defer server.Close()
	weir(t, "", "stream", "read", "c", "s", "--server", server.URL).want(t, exitFailed, "\ta\n", "or its store was restored")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestStreamsOfEveryNameThatHTTPCanSay(t *testing.T) {
	s := queueServer(t, "--store", "memory:")
	weir(t, "", "stream", "category", "create", "order").want(t, exitOK)
	for _, name := range []string{".", "..", "...", "a.b", "./..", "//", "a/", "%2E", "/", ";", "a;b"} {
		weir(t, name+"\n", "stream", "append", "order", name, "--type", "t", "--expect", "none").want(t, exitOK, "version 1 after it")
		if r := weir(t, "", "stream", "read", "order", name); r.code != exitOK || !strings.HasSuffix(r.out, "\t"+name+"\n") || strings.Count(r.out, "\n") != 1 {
			t.Errorf("%s: %d %s%s", name, r.code, r.out, r.err)
		}
	}
	s.stop() // what follows is refused before any request
	for name, says := range map[string]string{"": "the name of the stream is empty"} {
		for _, args := range [][]string{{"append", "order", name, "--type", "t"}, {"read", "order", name}, {"delete", "order", name, "--yes"}, {"archive", "order", name}, {"unarchive", "order", name}, {"snapshot", "order", name}} {
			weir(t, "x", append([]string{"stream"}, args...)...).want(t, exitUsage, says)
		}
	}
	weir(t, "", "stream", "read", "", "s").want(t, exitUsage, "the name of the category is empty")
}

// What was sent and not answered may have happened; what reached no server did not.
func TestALostAnswerMayHaveHappened(t *testing.T) {
	servers := map[string]http.HandlerFunc{
		"lost":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"late":    func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a proxy": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) },
		"failed": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"type":"urn:weir:problem:internal","title":"weir failed","status":500,"detail":"the log of weir has more"}`)
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9") },
	}
	refused := httptest.NewServer(nil)
	refused.Close()
	for name, answer := range servers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			answer(w, r)
		}))
		defer server.Close()
		for _, args := range []string{"stream append c s --type t --id 1", "stream delete c s --yes", "stream archive c s", "stream unarchive c s", "stream snapshot c s --save 1", "stream category create c",
			"stream forget c x --yes", "stream retention c --keep-all", "stream retention c s --inherit", "stream retention c s --keep-events 5",
			"queue create q", "queue send q", "queue alter q --attempts 3", "queue delete q --yes", "queue purge q --yes", "queue pause q", "queue redrive q 1-1", "queue schedule create q s --cron @daily --value x", "queue schedule delete q s"} {
			if name == "late" && strings.Contains(args, "redrive") {
				continue // it waits 10 s longer
			}
			call := append(strings.Fields(args), "--timeout", "10s", "--server")
			says := "check whether the change was made"
			if strings.Contains(args, "append") {
				says = "read the stream; or, if each event has an id, repeat the append with the same --expect"
			}
			var got result
			if name == "late" {
				got = weirInTime(t, append(strings.Fields(args), "--server", server.URL)...)
			} else {
				got = weir(t, "x", append(call, server.URL)...)
			}
			got.want(t, exitUnreachable, "no answer came", "The change may have been made, or not", says)
			if name == "lost" {
				r := weir(t, "x", append(call, refused.URL)...)
				if r.want(t, exitUnreachable, "no answer from a server", "start one with `weir serve`"); strings.Contains(r.err, "may have") {
					t.Errorf("a server that is not there: %s", r.err)
				}
			}
		}
		if r := weir(t, "", "stream", "read", "c", "s", "--timeout", "50ms", "--server", server.URL); r.code != exitUnreachable && name != "failed" || strings.Contains(r.err, "may have") {
			t.Errorf("%s: a read: %d %s", name, r.code, r.err)
		}
	}
}

// weirInTime runs a command with a time-out that is just long enough to reach the server.
func weirInTime(t *testing.T, args ...string) (r result) {
	t.Helper()
	for timeout := 50 * time.Millisecond; timeout < 10*time.Second; timeout *= 3 {
		r = weir(t, "x", append(args, "--timeout", timeout.String())...)
		if !strings.Contains(r.err, "start one with") {
			break
		}
	}
	return r
}

// The server waits up to 20 s for its store.
func TestAClientWaitsLongerThanTheServer(t *testing.T) {
	weir(t, "", "stream", "append", "--help").want(t, exitOK, "up to 20s", `--timeout=30s`)
}
