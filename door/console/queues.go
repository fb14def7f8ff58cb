package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type queueInfo struct {
	Name, ID, Topic string
	Settings        map[string]setting
	Counts          *queueCounts
}

// queueCounts are the messages by state. A count that the API does not have is nil.
type queueCounts struct {
	Ready, Claimed, Waiting, Dead int64
	Delayed                       *int64
	Oldest                        int64 `json:"oldest_ms"`
}

// Paused reports whether claims get no messages.
func (q queueInfo) Paused() bool { return q.Settings["paused"] == "true" }

// setting is the value of a setting, as JSON.
type setting string

// UnmarshalJSON keeps the text.
func (s *setting) UnmarshalJSON(text []byte) error {
	*s = setting(text)
	return nil
}

type queuesPage struct {
	Prefix    string
	Queues    []queueInfo
	Lines     map[string]*queueLine // those that the metrics have
	More      int
	MayCreate bool
}

func (v *visit) queues() error {
	var all struct{ Queues []queueInfo }
	if err := v.get("/v1/queues", &all); err != nil {
		return err
	}
	p := queuesPage{Prefix: v.r.URL.Query().Get("prefix"), Lines: map[string]*queueLine{}, MayCreate: v.may(http.MethodPost, "/v1/queues")}
	for _, l := range queueLines(v.c.cfg.History.look(storeLeast)) {
		p.Lines[l.Name] = &l
	}
	for _, q := range all.Queues {
		switch {
		case !strings.HasPrefix(q.Name, p.Prefix):
		case len(p.Queues) < listMost:
			p.Queues = append(p.Queues, q)
		default:
			p.More++
		}
	}
	v.show(http.StatusOK, "queues", "Queues", p)
	return nil
}

func (v *visit) createQueue() error {
	name := v.r.PostForm.Get("name")
	if err := v.do(http.MethodPost, "/v1/queues", map[string]any{"name": name}, nil); err != nil {
		return err
	}
	return v.done(pagePath("/console/queues/%s", name), "Queue "+name+" was created.")
}

type schedule struct {
	Name, Cron, Zone string
	Paused, Broken   bool
	Next             *int64
}

// queueRights are the buttons that the reader sees.
type queueRights struct{ Change, Delete, Enqueue, Redrive, Schedule bool }

func (v *visit) queueRights(name string) queueRights {
	at := path("/v1/queues/%s", name)
	return queueRights{
		Change: v.may(http.MethodPatch, at), Delete: v.may(http.MethodDelete, at), Enqueue: v.may(http.MethodPost, at+"/messages"),
		Redrive: v.may(http.MethodPost, at+"/dead/redrive"), Schedule: v.may(http.MethodPut, at+"/schedules/x"),
	}
}

type queuePage struct {
	queueInfo
	May       queueRights
	Schedules []schedule
}

func (v *visit) queue() error {
	name := v.named("queue")
	var p queuePage
	if err := v.get(path("/v1/queues/%s", name), &p.queueInfo); err != nil {
		return err
	}
	var s struct{ Schedules []schedule }
	if err := v.get(path("/v1/queues/%s/schedules", name), &s); err != nil && !forbidden(err) {
		return err
	}
	p.Schedules, p.May = s.Schedules, v.queueRights(name)
	for _, name := range unsetSettings {
		if _, set := p.Settings[name]; !set && p.Settings != nil {
			p.Settings[name] = ""
		}
	}
	v.show(http.StatusOK, "queue", "Queue "+name, p)
	return nil
}

// unsetSettings are the settings of a queue that the API leaves out while they are not set.
var unsetSettings = []string{"concurrency", "delays_ms", "rate", "ttl_ms"}

func (v *visit) alterQueue() error {
	name, form := v.named("queue"), v.r.PostForm
	var value any // null: back to the default
	if text := strings.TrimSpace(form.Get("value")); text != "" {
		value = json.RawMessage(text)
		if !json.Valid([]byte(text)) {
			return &problem{Status: http.StatusBadRequest, Title: "The value is no number, true, false or list", Detail: "Nothing was changed."}
		}
	}
	if err := v.do(http.MethodPatch, path("/v1/queues/%s", name), map[string]any{"settings": map[string]any{form.Get("setting"): value}}, nil); err != nil {
		return err
	}
	return v.done(pagePath("/console/queues/%s", name), "The setting "+form.Get("setting")+" was changed.")
}

func (v *visit) pauseQueue() error {
	return v.changeQueue("pause", "The queue is paused: claims get no messages.")
}
func (v *visit) resumeQueue() error { return v.changeQueue("resume", "The queue is no longer paused.") }

func (v *visit) purgeQueue() error {
	if err := v.confirmed(v.named("queue")); err != nil {
		return err
	}
	return v.changeQueue("purge", "All messages of the queue were removed.")
}

func (v *visit) changeQueue(action, said string) error {
	name := v.named("queue")
	if err := v.do(http.MethodPost, path("/v1/queues/%s", name)+"/"+action, nil, nil); err != nil {
		return err
	}
	return v.done(pagePath("/console/queues/%s", name), said)
}

func (v *visit) deleteQueue() error {
	name := v.named("queue")
	if err := v.confirmed(name); err != nil {
		return err
	}
	if err := v.do(http.MethodDelete, path("/v1/queues/%s", name), nil, nil); err != nil {
		return err
	}
	return v.done("/console/queues", "Queue "+name+" was deleted. Its topics remain.")
}

func (v *visit) enqueue() error {
	name, form := v.named("queue"), v.r.PostForm
	message, err := messageOf(form)
	if err != nil {
		return err
	}
	id, err := v.enqueueOne(name, message)
	if err != nil {
		return err
	}
	return v.done(pagePath("/console/queues/%s", name), "The message was enqueued: "+id+".")
}

// messageOf reads a message from a form.
func messageOf(form url.Values) (map[string]any, error) {
	message := map[string]any{"value": typed(form.Get("value"))}
	if key := form.Get("key"); key != "" {
		message["key"] = key
	}
	headers, err := headersOf(form.Get("headers"))
	if err != nil {
		return nil, err
	}
	if headers != nil {
		message["headers"] = headers
	}
	if seconds := form.Get("delay"); seconds != "" {
		s, ok := number(seconds)
		if !ok || s < 0 || s > 1e9 {
			return nil, &problem{Status: http.StatusBadRequest, Title: "The delay is no number of seconds", Detail: "Nothing was enqueued."}
		}
		message["delay_ms"] = int64(s * 1000)
	}
	return message, nil
}

// enqueueOne enqueues a message and returns its id.
func (v *visit) enqueueOne(queue string, message map[string]any) (id string, err error) {
	var answer struct{ Messages []struct{ ID string } }
	if err := v.do(http.MethodPost, path("/v1/queues/%s/batch", queue), map[string]any{"messages": []any{message}}, &answer); err != nil {
		return "", err
	}
	if len(answer.Messages) == 1 {
		id = answer.Messages[0].ID
	}
	return id, nil
}

type message struct {
	record
	ID, State, Worker, Error, Letter string
	Attempt                          int64
	Until                            *int64
	DoneAt                           *int64 `json:"done_at"`
}

type queueMessagesPage struct {
	Queue, State string
	States       []string
	Messages     []message
	Next         string
}

func (v *visit) queueMessages() error {
	name, q := v.named("queue"), v.r.URL.Query()
	p := queueMessagesPage{Queue: name, State: q.Get("state"), States: []string{"", "ready", "claimed", "waiting", "delayed", "done"}}
	if err := v.get(path("/v1/queues/%s/messages", name)+query("state", p.State, "from", q.Get("from"), "max", strconv.Itoa(pageEvents)), &p); err != nil {
		return err
	}
	v.show(http.StatusOK, "queue_messages", "Messages of "+name, p)
	return nil
}

// findMessage shows the state of one message.
func (v *visit) findMessage() error {
	name, id := v.named("queue"), strings.TrimSpace(v.r.URL.Query().Get("id"))
	var p struct {
		Queue   string
		Found   message
		Content *message // nil: it is not read, because the message is not in the queue any more
	}
	p.Queue = name
	if err := v.get(path("/v1/queues/%s/messages/%s", name, id), &p.Found); err != nil {
		return err
	}
	switch p.Found.State {
	case "ready", "claimed", "waiting", "delayed":
		var list struct{ Messages []message }
		if err := v.get(path("/v1/queues/%s/messages", name)+query("state", p.Found.State, "from", p.Found.ID, "max", "1"), &list); err != nil {
			return err
		}
		if len(list.Messages) == 1 && list.Messages[0].ID == p.Found.ID {
			p.Content = &list.Messages[0]
		}
	}
	v.show(http.StatusOK, "message", "Message "+id, p)
	return nil
}

type letter struct {
	record
	Letter, ID, Reason, Error, Worker string
	Attempts                          int64
	Enqueued, Died                    *int64

	After string `json:"-"` // the letter before it, also one that is not shown
}

type deadPage struct {
	Queue   string
	Search  string // only letters with this text in their error, reason, key or value are shown
	Letters []letter
	Next    string // after which letter the next page begins
	Looked  int
	Redrive bool
	Discard bool
	// Doing is redrive or discard if more than fit into a request are being taken: all up to the
	// letter Until, or those that have Search after the letter After.
	Doing, Until, After string
}

func (v *visit) dead() error {
	name, q := v.named("queue"), v.r.URL.Query()
	rights := v.queueRights(name)
	p := deadPage{Queue: name, Search: q.Get("search"), Redrive: rights.Redrive, Discard: rights.Delete}
	if doing := q.Get("doing"); doing == "redrive" || doing == "discard" {
		p.Doing, p.Until, p.After = doing, q.Get("until"), q.Get("after")
	}
	after, until := q.Get("after"), time.Now().Add(scanTime)
	for len(p.Letters) < pageEvents && p.Looked < scanMost {
		var page struct{ Letters []letter }
		if err := v.get(path("/v1/queues/%s/dead", name)+query("after", after, "max", strconv.Itoa(pageEvents)), &page); err != nil {
			return err
		}
		for _, l := range page.Letters {
			p.Looked++
			l.After = after
			if after = l.Letter; l.has(p.Search) {
				p.Letters = append(p.Letters, l)
			}
		}
		if p.Next = after; len(page.Letters) == 0 {
			p.Next = ""
			break
		}
		if time.Now().After(until) {
			break
		}
	}
	v.show(http.StatusOK, "dead", "Dead letters of "+name, p)
	return nil
}

func (l letter) has(search string) bool {
	key, _ := l.KeyText().raw()
	value, _ := l.Body().raw()
	return search == "" || strings.Contains(l.Error, search) || strings.Contains(l.Reason, search) || strings.Contains(string(key), search) || strings.Contains(string(value), search)
}

// findLetter gets one dead letter with one call. The id is <partition>-<offset>, so it lists one
// letter, beginning after offset-1. Nothing precedes offset 0: then it lists a page of letters,
// beginning after the letter in the parameter after, which a link has, and searches that page.
func (v *visit) findLetter(queue, id, after string) (*letter, error) {
	most := pageEvents
	partition, offset, _ := strings.Cut(id, "-")
	if n, err := strconv.ParseInt(offset, 10, 64); err == nil && n > 0 {
		after, most = fmt.Sprintf("%s-%d", partition, n-1), 1
	}
	var page struct{ Letters []letter }
	if err := v.get(path("/v1/queues/%s/dead", queue)+query("after", after, "max", strconv.Itoa(most)), &page); err != nil {
		return nil, err
	}
	for _, l := range page.Letters {
		if l.Letter == id {
			return &l, nil
		}
	}
	return nil, &problem{Status: http.StatusNotFound, Title: "There is no such dead letter", Detail: "It may have been redriven or discarded."}
}

type letterPage struct {
	Queue   string
	Letter  letter
	After   string // a letter before it
	Headers string
	Redrive bool
	Discard bool
}

func (v *visit) deadLetter() error {
	name, q := v.named("queue"), v.r.URL.Query()
	l, err := v.findLetter(name, q.Get("letter"), q.Get("after"))
	if err != nil {
		return err
	}
	rights := v.queueRights(name)
	v.show(http.StatusOK, "dead_letter", "Dead letter "+l.ID, letterPage{Queue: name, Letter: *l, After: q.Get("after"), Headers: headerLines(l.Headers), Redrive: rights.Redrive && rights.Enqueue, Discard: rights.Delete})
	return nil
}

// Editable reports whether a form can show the whole message: if the form's message replaces it,
// only what the user edited is different. Weir's own headers do not count.
func (l letter) Editable() bool {
	if l.Value == nil || l.KeyB64 != nil || strings.Contains(*l.Value, "\r") {
		return false
	}
	for _, h := range l.Headers {
		if isWeirs(h.Name) {
			continue
		}
		if h.Name == "" || h.Value == nil {
			return false
		}
		read, err := headersOf(headerLines([]pair{h}))
		if err != nil || len(read) != 1 || read[0]["name"] != h.Name || read[0]["value"] != *h.Value {
			return false
		}
	}
	return true
}

// isWeirs reports whether a header is weir's own, so that a new message cannot have it. It can have
// those of a schedule.
func isWeirs(header string) bool {
	return strings.HasPrefix(header, "weir.") && header != "weir.queue.schedule" && header != "weir.queue.tick"
}

// priority returns the message's level; 0 if it has none, or one that is no number.
func (l letter) priority() (level int) {
	for _, h := range l.Headers {
		if h.Name == "weir.queue.priority" && h.Value != nil {
			level, _ = strconv.Atoi(*h.Value)
		}
	}
	return level
}

// headerLines writes headers as headersOf reads them. Those of weir itself are left out.
func headerLines(headers []pair) string {
	var lines []string
	for _, h := range headers {
		if h.Name != "" && h.Value != nil && !isWeirs(h.Name) {
			lines = append(lines, h.Name+": "+*h.Value)
		}
	}
	return strings.Join(lines, "\n")
}

func (v *visit) redrive() error { return v.sweep("redrive", "redriven") }
func (v *visit) discard() error { return v.sweep("discard", "discarded") }

// sweep redrives or discards the letters of the form, or all.
func (v *visit) sweep(action, did string) error {
	name, form := v.named("queue"), v.r.PostForm
	body := map[string]any{"letters": form["letter"]}
	if form.Get("found") != "" {
		return v.sweepFound(action, did)
	}
	if form.Get("all") != "" {
		body = map[string]any{"all": true}
		if action == "discard" {
			if err := v.confirmed(name); err != nil {
				return err
			}
		}
		if until := form.Get("until"); until != "" {
			body["until"] = until
		}
	} else if len(form["letter"]) == 0 {
		return &problem{Status: http.StatusBadRequest, Title: "Nothing was chosen", Detail: "Choose dead letters, or all."}
	}
	var swept struct {
		Taken   int64
		Until   string
		Problem *problem // why not all
	}
	if err := v.do(http.MethodPost, path("/v1/queues/%s/dead", name)+"/"+action, body, &swept); err != nil {
		return err
	}
	said := fmt.Sprintf("%d dead letters were %s.", swept.Taken, did)
	if swept.Problem != nil {
		said += " What happened to the others: " + swept.Problem.Error() + "."
	}
	back := pagePath("/console/queues/%s/dead", name)
	if swept.Until != "" {
		said += " There are more."
		back += query("doing", action, "until", swept.Until)
	}
	return v.done(back, said)
}

// sweepFound redrives or discards the letters that have a text, from the one after the letter after
// on, for as long as one search may take.
func (v *visit) sweepFound(action, did string) error {
	name, form := v.named("queue"), v.r.PostForm
	text, after, until := form.Get("search"), form.Get("after"), time.Now().Add(scanTime)
	if text == "" {
		return &problem{Status: http.StatusBadRequest, Title: "Nothing was searched for", Detail: "Give a text, or choose all."}
	}
	if action == "discard" {
		if err := v.confirmed(name); err != nil {
			return err
		}
	}
	looked, taken, more := 0, int64(0), true
	for more && looked < scanMost && time.Now().Before(until) {
		var page struct{ Letters []letter }
		if err := v.get(path("/v1/queues/%s/dead", name)+query("after", after, "max", strconv.Itoa(pageEvents)), &page); err != nil {
			return err
		}
		var chosen []string
		for _, l := range page.Letters {
			looked++
			if after = l.Letter; l.has(text) {
				chosen = append(chosen, l.Letter)
			}
		}
		more = len(page.Letters) > 0
		if len(chosen) == 0 {
			continue
		}
		var swept struct {
			Taken   int64
			Problem *problem // why not all
		}
		if err := v.do(http.MethodPost, path("/v1/queues/%s/dead", name)+"/"+action, map[string]any{"letters": chosen}, &swept); err != nil {
			return err
		}
		if taken += swept.Taken; swept.Problem != nil {
			return swept.Problem
		}
	}
	back, said := pagePath("/console/queues/%s/dead", name), fmt.Sprintf("%d dead letters were %s, of %d that were looked at.", taken, did, looked)
	if more {
		said += " There may be more."
		back += query("search", text, "after", after, "doing", action)
	}
	return v.done(back, said)
}

// editAndRedrive enqueues an edited message, and then discards the dead letter. So nothing is lost
// if the second does not happen: the reader is told that both are there.
func (v *visit) editAndRedrive() error {
	name, form := v.named("queue"), v.r.PostForm
	id := form.Get("letter")
	edited, err := messageOf(form)
	if err != nil {
		return err
	}
	l, err := v.findLetter(name, id, form.Get("after"))
	if err != nil {
		return err
	}
	if !l.Editable() {
		return &problem{Status: http.StatusConflict, Title: "This message cannot be edited as text", Detail: "Its key, its value or a header has bytes that a form would lose. Nothing was changed."}
	}
	if level := l.priority(); level > 0 { // as a redrive has it: the highest level, if the queue has fewer
		var q queueInfo
		if err := v.get(path("/v1/queues/%s", name), &q); err != nil {
			return err
		}
		levels, _ := strconv.Atoi(string(q.Settings["priorities"]))
		edited["priority"] = min(level, max(levels-1, 0))
	}
	enqueued, err := v.enqueueOne(name, edited)
	if err != nil {
		return err
	}
	var swept struct{ Taken int64 }
	if err := v.do(http.MethodPost, path("/v1/queues/%s/dead/discard", name), map[string]any{"letters": []string{id}, "replaced_by": enqueued}, &swept); err != nil {
		return &problem{Status: http.StatusConflict, Title: "The edited message was enqueued, and the dead letter may still be there", Detail: "Discard it; redriving it would enqueue the message as it was. Why it was not discarded: " + err.Error()}
	}
	if swept.Taken == 0 {
		return &problem{
			Status: http.StatusConflict, Title: "The edited message was enqueued, and its dead letter had been redriven or discarded before",
			Detail: "If it was redriven, the message as it was comes, too. The edited one is " + enqueued + ".",
		}
	}
	return v.done(pagePath("/console/queues/%s/dead", name), "The edited message was enqueued as "+enqueued+", and its dead letter discarded.")
}

func (v *visit) setSchedule() error {
	name, form := v.named("queue"), v.r.PostForm
	body := map[string]any{"cron": form.Get("cron"), "paused": form.Get("paused") != "", "message": map[string]any{"value": form.Get("value")}}
	if zone := form.Get("zone"); zone != "" {
		body["zone"] = zone
	}
	if err := v.do(http.MethodPut, path("/v1/queues/%s/schedules/%s", name, form.Get("schedule")), body, nil); err != nil {
		return err
	}
	return v.done(pagePath("/console/queues/%s", name), "The schedule "+form.Get("schedule")+" is set.")
}

// runSchedule enqueues the message of a schedule now.
func (v *visit) runSchedule() error {
	name, which := v.named("queue"), v.r.PostForm.Get("schedule")
	var s struct{ Message json.RawMessage }
	if err := v.get(path("/v1/queues/%s/schedules/%s", name, which), &s); err != nil {
		return err
	}
	var m map[string]any
	if err := json.Unmarshal(s.Message, &m); err != nil {
		return &problem{Status: http.StatusConflict, Title: "The schedule has no message that can be read", Detail: "Set it again."}
	}
	id, err := v.enqueueOne(name, m)
	if err != nil {
		return err
	}
	return v.done(pagePath("/console/queues/%s", name), "The message of schedule "+which+" was enqueued as "+id+".")
}

func (v *visit) deleteSchedule() error {
	name, which := v.named("queue"), v.r.PostForm.Get("schedule")
	if err := v.do(http.MethodDelete, path("/v1/queues/%s/schedules/%s", name, which), nil, nil); err != nil {
		return err
	}
	return v.done(pagePath("/console/queues/%s", name), "The schedule "+which+" was deleted.")
}
