package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAStreamFromItsCategoryToItsEnd(t *testing.T) {
	for _, store := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")} {
		s := queueServer(t, "--store", store)
		weir(t, "", "stream", "category", "list").want(t, exitOK)
		weir(t, "", "stream", "category", "create", "order", "--partitions", "2", "--keep-events", "1000", "--keep-for", "90d", "--config", "max.message.bytes=2000000").want(t, exitOK, "created category order")
		weir(t, "", "stream", "category", "create", "order").want(t, exitFailed, "exists", "--if-not-exists")
		weir(t, "", "stream", "category", "create", "order", "--if-not-exists").want(t, exitOK, "there already")
		weir(t, "", "stream", "category", "create", "a/b").want(t, exitUsage, "invalid topic name")
		weir(t, "", "stream", "category", "list").want(t, exitOK, "order\n")
		weir(t, "", "stream", "category", "list", "--json").want(t, exitOK, `"order"`)

		weir(t, `{"item":"teapot"}`+"\n", "stream", "append", "order", "eu/47 11", "--type", "Placed", "--id", "1", "--expect", "none").want(t, exitOK, "1 event appended; the stream is at version 1")
		weir(t, `{"item":"teapot"}`+"\n", "stream", "append", "order", "eu/47 11", "--type", "Placed", "--id", "1", "--expect", "none").want(t, exitOK, "1 event there already; the stream is at version 1")
		weir(t, "other", "stream", "append", "order", "eu/47 11", "--type", "Placed", "--id", "1", "--expect", "none").want(t, exitFailed, "id")
		weir(t, `{"type":"Paid","value":{"n":1}}`+"\n\n"+`{"type":"Sent","value_b64":"/w=="}`, "stream", "append", "order", "eu/47 11", "--input", "json", "--expect", "1").want(t, exitOK, "2 events appended; the stream is at version 3")
		weir(t, "x", "stream", "append", "order", "eu/47 11", "--type", "t", "--expect", "1").want(t, exitFailed, "version 3", "weir stream read")
		weir(t, "x", "stream", "append", "order", "eu/47 11", "--type", "t", "--expect", "none").want(t, exitFailed, "version 3")
		weir(t, "x", "stream", "append", "order", "none", "--type", "t", "--expect", "exists").want(t, exitFailed, "does not exist")
		weir(t, "\xff", "stream", "append", "order", "b", "--type", "t", "--expect", "any").want(t, exitOK, "1 event appended")

		r := weir(t, "", "stream", "read", "order", "eu/47 11")
		r.want(t, exitOK, "0\t", "\tPlaced\t{\"item\":\"teapot\"}\n", "\tPaid\t{\"n\":1}\n", "2\t", "\tSent\t(bytes)\n")
		if n := strings.Count(r.out, "\n"); n != 3 {
			t.Errorf("%d lines: %s", n, r.out)
		}
		r = weir(t, "", "stream", "read", "order", "eu/47 11", "--backward", "-n", "1", "--json")
		if r.want(t, exitOK, `"version":2`, `"type":"Sent"`, `"value_b64":"/w=="`); strings.Count(r.out, "\n") != 1 {
			t.Errorf("one event is %s", r.out)
		}
		if r = weir(t, "", "stream", "read", "order", "eu/47 11", "--from", "1", "--to", "2", "--type", "Paid", "--until", "2999-01-01T00:00:00Z"); !strings.HasPrefix(r.out, "1\t") || strings.Count(r.out, "\n") != 1 {
			t.Errorf("a part is %s", r.out)
		}
		r = weir(t, "", "stream", "list", "order")
		r.want(t, exitOK, "STREAM", "eu/47 11", "open", "b ")
		weir(t, "", "stream", "list", "order", "--prefix", "eu/", "--json", "-n", "1").want(t, exitOK, `{"stream":"eu/47 11","version":3,"first":0,"exists":true}`)

		weir(t, "", "stream", "snapshot", "order", "b").want(t, exitFailed, "no such snapshot", "--save")
		weir(t, "\xffstate\n", "stream", "snapshot", "order", "eu/47 11", "--save", "2").want(t, exitOK, "saved the snapshot at version 2")
		if r := weir(t, "", "stream", "snapshot", "order", "eu/47 11"); r.out != "\xffstate\n" {
			t.Errorf("the snapshot is %q", r.out)
		}
		weir(t, "", "stream", "snapshot", "order", "eu/47 11", "--at", "2", "--json").want(t, exitOK, `"version": 2`, `"value_b64"`)
		weir(t, "", "stream", "snapshot", "order", "eu/47 11", "--at", "1").want(t, exitFailed, "no such snapshot")
		weir(t, "x", "stream", "snapshot", "order", "eu/47 11", "--save", "4").want(t, exitUsage, "version 4")

		weir(t, "", "stream", "archive", "order", "eu/47 11", "--expect", "3").want(t, exitOK, "archived stream eu/47 11")
		weir(t, "x", "stream", "append", "order", "eu/47 11", "--type", "t").want(t, exitFailed, "archived", "weir stream unarchive")
		weir(t, "", "stream", "list", "order").want(t, exitOK, "archived")
		weir(t, "", "stream", "unarchive", "order", "eu/47 11").want(t, exitOK, "opened")
		weir(t, "", "stream", "delete", "order", "eu/47 11").want(t, exitUsage, "nobody is there to ask")
		weir(t, "", "stream", "delete", "order", "eu/47 11", "--expect", "2", "--yes").want(t, exitFailed, "version 3")
		weir(t, "", "stream", "delete", "order", "eu/47 11", "--expect", "3", "--yes").want(t, exitOK, "deleted stream eu/47 11")
		weir(t, "", "stream", "list", "order").want(t, exitOK, "deleted")
		for _, args := range [][]string{{"read", "order", "eu/47 11"}, {"archive", "order", "never"}, {"unarchive", "order", "never"}} {
			weir(t, "", append([]string{"stream"}, args...)...).want(t, exitFailed, "there is no such stream", "weir stream list")
		}
		for _, args := range [][]string{{"read", "none", "s"}, {"list", "none"}, {"snapshot", "none", "s"}, {"delete", "none", "s", "--yes"}} {
			weir(t, "", append([]string{"stream"}, args...)...).want(t, exitFailed, "there is no such category", "weir stream category create")
		}
		s.stop()
		weir(t, "", "stream", "list", "order", "--timeout", "1s").want(t, exitUnreachable, "no answer from a server", "weir serve")
	}
}

func TestLongStreamsAreReadAndListedWhole(t *testing.T) {
	queueServer(t, "--store", "memory:")
	weir(t, "", "stream", "category", "create", "order").want(t, exitOK)
	weir(t, strings.Repeat("x\n", 2500), "stream", "append", "order", "long", "--type", "t").want(t, exitOK, "2500 events appended")
	for _, args := range [][]string{nil, {"--json"}, {"--backward"}} {
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
		{"a\nb", "--id names one event", []string{"append", "c", "s", "--type", "t", "--id", "1"}},
		{"{", "line 1: it is not JSON", []string{"append", "c", "s", "-i", "json"}},
		{"xx", "longer than the limit", []string{"append", "c", "s", "--type", "t", "--line-limit", "1B"}},
		{strings.Repeat("x\n", 10_001), "at most 10000 events", []string{"append", "c", "s", "--type", "t"}},
		{"x", "not a version", []string{"append", "c", "s", "--type", "t", "--expect=-1"}},
		{"x", "not a version", []string{"append", "c", "s", "--type", "t", "--expect", "latest"}},
		{"", "not a version", []string{"delete", "c", "s", "--expect", "9223372036854775808", "--yes"}},
		{"", "cannot be archived", []string{"archive", "c", "s", "--expect", "none"}},
		{"", "less than 0", []string{"read", "c", "s", "--max=-1"}},
		{"", "less than 0", []string{"list", "c", "--max=-1"}},
		{"x", "--save", []string{"snapshot", "c", "s", "--save", "1", "--json"}},
	} {
		weir(t, c.in, append([]string{"stream"}, c.args...)...).want(t, exitUsage, c.says)
	}
}
