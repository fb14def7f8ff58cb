package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
)

type scheduleView struct {
	Name, Cron, Zone string
	Paused           bool
	Next             int64
	Message          message
}

func TestSchedulesAreSetListedAndDeleted(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.queue("mail", `"unique":true,"priorities":2`)
		const at = "/v1/queues/mail/schedules"
		list := func() (names []string) {
			var got struct{ Schedules []scheduleView }
			d.get(at).into(200, &got)
			for _, s := range got.Schedules {
				names = append(names, s.Name)
			}
			return names
		}
		if names := list(); len(names) > 0 {
			t.Errorf("a new queue has %v", names)
		}
		var set scheduleView
		d.asJSON("PUT", at+"/digest", `{"cron":"30 8 * * MON-FRI","zone":"Europe/Berlin","message":
		{"value":"\u0000d","key":"k","headers":{"a":"b"},"unique":"digest","priority":1}}`).into(200, &set)
		next := time.UnixMilli(set.Next)
		if set.Name != "digest" || set.Cron != "30 8 * * MON-FRI" || set.Zone != "Europe/Berlin" || set.Paused || !next.After(time.Now()) || next.After(time.Now().AddDate(0, 0, 4)) {
			t.Errorf("%+v", set)
		}
		if m := set.Message; m.Value != "\x00d" || *m.Key != "k" || len(m.Headers) != 1 || m.Headers[0].Value != "b" {
			t.Errorf("its message: %+v", m)
		}
		var paused scheduleView
		if d.asJSON("PUT", at+"/digest", `{"cron":"@daily","paused":true,"message":{"value_b64":"/w=="}}`).into(200, &paused); !paused.Paused || paused.Next != 0 || paused.Message.ValueB64 != "/w==" {
			t.Errorf("replaced: %+v", paused)
		}
		var one scheduleView
		if d.get(at+"/digest").into(200, &one); one.Message.ValueB64 != "/w==" || one.Cron != "@daily" {
			t.Errorf("described: %+v", one)
		}
		d.get(at+"/none").refused(404, "unknown_schedule")
		longest := strings.Repeat("n", 100)
		d.asJSON("PUT", at+"/"+longest, `{"cron":"@daily","message":{"value":1}}`)
		if names := list(); fmt.Sprint(names) != fmt.Sprint([]string{"digest", longest}) {
			t.Errorf("listed: %v", names)
		}
		if a := d.do("DELETE", at+"/digest", ""); a.status != 204 {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
		d.do("DELETE", at+"/digest", "").refused(404, "unknown_schedule")
		if names := list(); len(names) != 1 {
			t.Errorf("after it was deleted: %v", names)
		}
		for name, refusals := range map[string][]struct{ body, kind string }{
			"digest": {
				{`{"message":{"value":1}}`, "invalid_json"},
				{`{"cron":"@daily"}`, "invalid_json"},
				{`{"cron":"@daily","message":{}}`, "invalid_json"},
				{`{"cron":"@daily","at":1,"message":{"value":1}}`, "invalid_json"},
				{`{"cron":"61 * * * *","message":{"value":1}}`, "invalid_request"},
				{`{"cron":"0 0 30 2 *","message":{"value":1}}`, "invalid_request"},
				{`{"cron":"@daily","zone":"Mars/Olympus","message":{"value":1}}`, "invalid_request"},
				{`{"cron":"@daily","message":{"value":1,"delay_ms":5}}`, "invalid_request"},
				{`{"cron":"@daily","message":{"value":1,"priority":2}}`, "invalid_request"},
			},
			longest + "n": {{`{"cron":"@daily","message":{"value":1}}`, "invalid_request"}},
			"a%20b":       {{`{"cron":"@daily","message":{"value":1}}`, "invalid_request"}},
		} {
			for _, r := range refusals {
				t.Run(r.body, func(t *testing.T) { d.asJSON("PUT", at+"/"+name, r.body).refused(400, r.kind) })
			}
		}
		d.asJSON("PUT", at+"/big", `{"cron":"@daily","message":{"value":"`+strings.Repeat("x", 64<<10+1)+`"}}`).refused(413, "too_large")
		d.asJSON("PUT", "/v1/queues/none/schedules/s", `{"cron":"@daily","message":{"value":1}}`).refused(404, "unknown_queue")
		d.get("/v1/queues/none/schedules").refused(404, "unknown_queue")
	})
}

func TestAScheduleThatCannotBeReadIsListedAsBroken(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.queue("mail", "")
	const at = "/v1/queues/mail/schedules"
	for _, name := range []string{"bad", "good"} {
		d.asJSON("PUT", at+"/"+name, `{"cron":"@daily","message":{"value":1}}`)
	}
	kvs, err := d.log.List(t.Context(), "queue/schedule/", "", 1)
	if err != nil || len(kvs) != 1 || !strings.HasSuffix(kvs[0].Key, "/bad") {
		t.Fatal(kvs, err)
	}
	if _, err := d.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: kvs[0].Key, Version: 7, Value: []byte("{")}}}); err != nil {
		t.Fatal(err)
	}
	list := func() string {
		var got struct {
			Schedules []struct {
				Name   string
				Broken bool
			}
		}
		d.get(at).into(200, &got)
		return fmt.Sprint(got.Schedules)
	}
	if got := list(); got != "[{bad true} {good false}]" {
		t.Errorf("listed: %s", got)
	}
	if got := strings.TrimSpace(d.get(at + "/bad").body); got != `{"name":"bad","cron":"","paused":false,"broken":true}` {
		t.Errorf("described: %s", got)
	}
	d.asJSON("PUT", at+"/bad", `{"cron":"@daily","message":{"value":1}}`)
	if got := list(); got != "[{bad false} {good false}]" {
		t.Errorf("listed, after it was set again: %s", got)
	}
}
