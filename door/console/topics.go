package console

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

type topicInfo struct {
	Name, ID   string
	Partitions int64
	Config     map[string]string
	Settings   map[string]string
	Holds      []held

	Line *topicLine // nil: not known
	Lag  *float64   // of the group that lags most; nil: no group reads it
}

// held is what a partition has.
type held struct {
	Partition int64
	First     int64 `json:"first_offset"`
	End       int64 `json:"end_offset"`
	Bytes     int64
}

func (h held) Count() int64 { return h.End - h.First }

func (t topicInfo) Count() (n int64) {
	for _, h := range t.Holds {
		n += h.Count()
	}
	return n
}

func (t topicInfo) Bytes() (n int64) {
	for _, h := range t.Holds {
		n += h.Bytes
	}
	return n
}

type topicsPage struct {
	Prefix    string
	Topics    []topicInfo
	More      int
	MayCreate bool
}

func (v *visit) topics() error {
	var all struct{ Topics []topicInfo }
	if err := v.get("/v1/topics", &all); err != nil {
		return err
	}
	lines, lag := v.c.cfg.History.topicLines(), map[string]*float64{}
	for _, n := range v.c.cfg.History.look(storeLeast).topicLag { // the largest first
		if lag[n.Name] == nil && v.may("GET", path("/v1/groups/%s", n.State)) {
			lag[n.Name] = &n.Value
		}
	}
	p := topicsPage{Prefix: v.r.URL.Query().Get("prefix"), MayCreate: v.may(http.MethodPost, "/v1/topics")}
	for _, t := range all.Topics {
		switch {
		case !strings.HasPrefix(t.Name, p.Prefix):
		case len(p.Topics) < listMost:
			if line, known := lines[t.Name]; known {
				t.Line = &line
			}
			t.Lag = lag[t.Name]
			p.Topics = append(p.Topics, t)
		default:
			p.More++
		}
	}
	v.show(http.StatusOK, "topics", "Topics", p)
	return nil
}

func (v *visit) createTopic() error {
	name := v.r.PostForm.Get("name")
	body := map[string]any{"name": name}
	if n, err := strconv.Atoi(v.r.PostForm.Get("partitions")); err == nil {
		body["partitions"] = n
	}
	if err := v.do(http.MethodPost, "/v1/topics", body, nil); err != nil {
		return err
	}
	return v.done(pagePath("/console/topics/%s", name), "Topic "+name+" was created.")
}

type topicPage struct {
	topicInfo
	MayRead, MayWrite, MayChange, MayDelete bool
	Change                                  *settingsChange
	Readers                                 []named // groups, in State, and their lag; the largest first
}

// settingsChange is a change of a topic's settings that is not done yet.
type settingsChange struct {
	Name, Before, After string
	Partitions          string
}

func (v *visit) topicPage(name string) (*topicPage, error) {
	var p topicPage
	if err := v.get(path("/v1/topics/%s", name), &p.topicInfo); err != nil {
		return nil, err
	}
	at := path("/v1/topics/%s", name)
	p.MayRead, p.MayWrite = v.may(http.MethodGet, at+"/events"), v.may(http.MethodPost, at+"/events")
	p.MayChange, p.MayDelete = v.may(http.MethodPatch, at), v.may(http.MethodDelete, at)
	p.Readers = first(pageEvents, v.c.cfg.History.look(storeLeast).topicLag, func(n named) bool { return n.Name == name && v.may("GET", path("/v1/groups/%s", n.State)) })
	return &p, nil
}

func (v *visit) topic() error {
	name := v.named("topic")
	p, err := v.topicPage(name)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "topic", "Topic "+name, p)
	return nil
}

// alterTopic shows a change of a setting, and does it when it is confirmed.
func (v *visit) alterTopic() error {
	name, form := v.named("topic"), v.r.PostForm
	change := &settingsChange{Name: strings.TrimSpace(form.Get("setting")), After: form.Get("value"), Partitions: form.Get("partitions")}
	if form.Get("confirm") == "" {
		p, err := v.topicPage(name)
		if err != nil {
			return err
		}
		if change.Before = p.Settings[change.Name]; change.Partitions != "" {
			change.Name, change.Before, change.After = "partitions", strconv.FormatInt(p.Partitions, 10), change.Partitions
		}
		p.Change = change
		v.show(http.StatusOK, "topic", "Topic "+name, p)
		return nil
	}
	body := map[string]any{}
	switch {
	case change.Partitions != "":
		n, err := strconv.Atoi(change.Partitions)
		if err != nil {
			return &problem{Status: http.StatusBadRequest, Title: "The number of partitions must be a number"}
		}
		body["partitions"] = n
	case form.Get("default") != "":
		body["config"] = map[string]any{change.Name: nil}
	default:
		body["config"] = map[string]any{change.Name: change.After}
	}
	if err := v.do(http.MethodPatch, path("/v1/topics/%s", name), body, nil); err != nil {
		return err
	}
	return v.done(pagePath("/console/topics/%s", name), "Topic "+name+" was changed.")
}

func (v *visit) deleteTopic() error {
	name := v.named("topic")
	if err := v.confirmed(name); err != nil {
		return err
	}
	if err := v.do(http.MethodDelete, path("/v1/topics/%s", name), nil, nil); err != nil {
		return err
	}
	return v.done("/console/topics", "Topic "+name+" and its events were deleted.")
}

// confirmed checks that the reader has typed the name of what will be lost.
func (v *visit) confirmed(name string) error {
	if v.r.PostForm.Get("really") != name {
		return &problem{Status: http.StatusBadRequest, Title: "Not confirmed", Detail: "Type " + strconv.Quote(name) + " to confirm. Nothing was changed."}
	}
	return nil
}

func (v *visit) publish() error {
	name, form := v.named("topic"), v.r.PostForm
	event := map[string]any{"value": typed(form.Get("value"))}
	if form.Get("tombstone") != "" {
		event["value"] = nil
	}
	if key := form.Get("key"); key != "" {
		event["key"] = key
	}
	if n, err := strconv.Atoi(form.Get("partition")); err == nil {
		event["partition"] = n
	}
	headers, err := headersOf(form.Get("headers"))
	if err != nil {
		return err
	}
	if headers != nil {
		event["headers"] = headers
	}
	var placed struct{ Events []record }
	if err := v.do(http.MethodPost, path("/v1/topics/%s/batch", name), map[string]any{"events": []any{event}}, &placed); err != nil {
		return err
	}
	said := "The event was published."
	if len(placed.Events) == 1 {
		said = fmt.Sprintf("The event was published: partition %d, offset %d.", placed.Events[0].Partition, placed.Events[0].Offset)
	}
	return v.done(pagePath("/console/topics/%s", name), said)
}

// typed is the text of a field of several lines. Browsers send \r\n for the end of each line.
func typed(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// headersOf reads headers, one on each line: a name, a colon, a value.
func headersOf(lines string) (headers []map[string]string, err error) {
	for _, line := range strings.Split(lines, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, &problem{Status: http.StatusBadRequest, Title: "A header has no colon", Detail: "Write one header on each line, as in trace: 4711. Nothing was published."}
		}
		headers = append(headers, map[string]string{"name": strings.TrimSpace(name), "value": strings.TrimSpace(value)})
	}
	return headers, nil
}

// Bounds of the search for messages: of one page, and of what is read for it.
const (
	pageEvents = 50
	scanStep   = 1000
	scanMost   = 20_000
	scanTime   = 2 * time.Second
)

// messagesPage is a page of one partition's events, or of what a search finds in all partitions.
type messagesPage struct {
	Topic                   string
	Partitions              int64
	All                     bool
	Holds                   held // the partition, or the last one that was searched
	From, Next              int64
	Key, Header, Text, Time string // what the events must have
	Meta, Is                string // a header, and all of its value
	As                      string // how values are shown: Text.As
	Filtered                bool
	Events                  []record
	Scanned                 int64
	Gap                     *gap
	MayRead                 bool
}

// Before is where the page before begins.
func (p messagesPage) Before() int64 { return max(p.Holds.First, p.From-pageEvents) }

// More reports whether there are events after this page.
func (p messagesPage) More() bool {
	return p.Next < p.Holds.End || p.All && p.Holds.Partition < p.Partitions-1
}

type gap struct{ From, To int64 }

type eventPage struct {
	Events []record
	Next   int64 `json:"next_offset"`
	First  int64 `json:"first_offset"`
	End    int64 `json:"end_offset"`
	Gap    *gap
}

func (v *visit) messages() error {
	name, q := v.named("topic"), v.r.URL.Query()
	var t topicInfo
	if err := v.get(path("/v1/topics/%s", name), &t); err != nil {
		return err
	}
	if q.Get("partition") == allPartitions {
		return v.messagesOfAll(t)
	}
	partition, err := strconv.ParseInt(orZero(q.Get("partition")), 10, 64)
	i := slices.IndexFunc(t.Holds, func(h held) bool { return h.Partition == partition })
	if err != nil || i < 0 {
		return &problem{Status: http.StatusNotFound, Title: "There is no partition " + q.Get("partition"), Detail: fmt.Sprintf("Topic %s has %d partitions, numbered from 0.", name, t.Partitions)}
	}
	p := messagesPage{Topic: name, Partitions: t.Partitions, Holds: t.Holds[i], Key: q.Get("key"), Header: q.Get("header"), Text: q.Get("text"), Time: q.Get("time"), As: asOf(q), MayRead: true}
	p.Filtered = p.Key != "" || p.Header != "" || p.Text != ""
	switch from := strings.TrimSpace(q.Get("from")); {
	case from != "":
		if p.From, err = strconv.ParseInt(from, 10, 64); err != nil {
			return &problem{Status: http.StatusBadRequest, Title: "This is no offset", Detail: "An offset is a number such as 1200, not " + strconv.Quote(from) + "."}
		}
	case p.Time != "":
		ms, err := parseTime(p.Time)
		if err != nil {
			return err
		}
		if p.From, err = v.offsetAt(name, p.Holds, ms); err != nil {
			return err
		}
	case p.Filtered:
		p.From = p.Holds.First
	default:
		p.From = max(p.Holds.First, p.Holds.End-pageEvents)
	}
	p.From = min(max(p.From, p.Holds.First), p.Holds.End)
	if err := v.scan(&p, time.Now().Add(scanTime)); err != nil {
		return err
	}
	v.show(http.StatusOK, "messages", "Messages of "+name, p)
	return nil
}

// allPartitions stands for the number of a partition.
const allPartitions = "all"

// asOf returns how the reader wants to see values.
func asOf(q url.Values) string {
	if as := q.Get("as"); as == "text" || as == "hex" {
		return as
	}
	return ""
}

// Percent is how much of the partition a search has looked at, from its first offset on.
func (p messagesPage) Percent() int64 {
	return 100 * (p.Next - p.Holds.First) / max(p.Holds.End-p.Holds.First, 1)
}

// messagesOfAll searches one partition after the other, from the partition and the offset on that
// an earlier page names.
func (v *visit) messagesOfAll(t topicInfo) (err error) {
	q := v.r.URL.Query()
	p := messagesPage{Topic: t.Name, Partitions: t.Partitions, All: true, Filtered: true, Key: q.Get("key"), Header: q.Get("header"), Text: q.Get("text"), Meta: q.Get("meta"), Is: q.Get("is"), As: asOf(q), MayRead: true}
	switch {
	case q.Get("time") != "" || q.Get("from") != "" && !q.Has("in"):
		return &problem{Status: http.StatusBadRequest, Title: "All partitions are searched from their beginning", Detail: "To begin at an offset or a time, choose a partition."}
	case p.Key == "" && p.Header == "" && p.Text == "" && p.Meta == "":
		return &problem{Status: http.StatusBadRequest, Title: "What to search for?", Detail: "All partitions are only searched for a key, a header or a text. To read events, choose a partition."}
	}
	at, errIn := strconv.Atoi(orZero(q.Get("in")))
	from, errFrom := strconv.ParseInt(orZero(q.Get("from")), 10, 64)
	if errIn != nil || errFrom != nil || at < 0 || at >= len(t.Holds) {
		return &problem{Status: http.StatusBadRequest, Title: "This is no place in the topic", Detail: "in is a partition, and from an offset."}
	}
	for until := time.Now().Add(scanTime); ; at++ {
		p.Holds = t.Holds[at]
		p.From = min(max(from, p.Holds.First), p.Holds.End)
		from = 0
		if err := v.scan(&p, until); err != nil {
			return err
		}
		full := len(p.Events) == pageEvents || p.Scanned >= scanMost || time.Now().After(until)
		if full || p.Gap != nil || p.Next < p.Holds.End || at == len(t.Holds)-1 {
			break
		}
	}
	v.show(http.StatusOK, "messages", "Messages of "+t.Name, p)
	return nil
}

// scan reads until a page is full, or the bounds of a search are reached.
func (v *visit) scan(p *messagesPage, until time.Time) error {
	step := pageEvents
	if p.Filtered {
		step = scanStep
	}
	for p.Next = p.From; len(p.Events) < pageEvents; {
		var page eventPage
		if err := v.get(path("/v1/topics/%s", p.Topic)+fmt.Sprintf("/partitions/%d/events?offset=%d&max=%d", p.Holds.Partition, p.Next, step), &page); err != nil {
			return err
		}
		for _, e := range page.Events {
			p.Next = e.Offset + 1
			p.Scanned++
			if p.takes(e) {
				e.shorten()
				e.as = p.As
				if p.Events = append(p.Events, e); len(p.Events) == pageEvents {
					return nil
				}
			}
		}
		stuck := page.Next <= p.Next && len(page.Events) == 0
		p.Next = page.Next
		p.Gap = page.Gap
		if !p.Filtered || stuck || page.Next >= page.End || page.Gap != nil || p.Scanned >= scanMost || time.Now().After(until) {
			return nil
		}
	}
	return nil
}

// takes reports whether an event has all that the search asks for.
func (p *messagesPage) takes(e record) bool {
	if p.Key != "" {
		if key, _ := e.KeyText().raw(); !strings.Contains(string(key), p.Key) {
			return false
		}
	}
	if p.Text != "" {
		if value, _ := e.Body().raw(); !strings.Contains(string(value), p.Text) {
			return false
		}
	}
	if p.Meta != "" && !slices.ContainsFunc(e.Headers, func(h pair) bool { return h.Name == p.Meta && h.Value != nil && *h.Value == p.Is }) {
		return false
	}
	if p.Header == "" {
		return true
	}
	name, value, both := strings.Cut(p.Header, ":")
	return slices.ContainsFunc(e.Headers, func(h pair) bool {
		b, _ := h.Text().raw()
		return h.Name == strings.TrimSpace(name) && (!both || strings.Contains(string(b), strings.TrimSpace(value)))
	})
}

// offsetAt finds the first event of a partition that is not older than a time, by halving: events
// are assumed to be in the order of their times, as they are unless a producer sets others.
func (v *visit) offsetAt(topic string, h held, ms int64) (int64, error) {
	low, high := h.First, h.End
	for low < high {
		middle := low + (high-low)/2
		var page eventPage
		if err := v.get(path("/v1/topics/%s", topic)+fmt.Sprintf("/partitions/%d/events?offset=%d&max=1", h.Partition, middle), &page); err != nil {
			return 0, err
		}
		switch {
		case len(page.Events) == 0:
			if page.Next <= middle { // the end, or nothing can be read here
				return middle, nil
			}
			low = page.Next
		case page.Events[0].Timestamp != nil && *page.Events[0].Timestamp >= ms:
			high = middle
		default:
			low = page.Events[0].Offset + 1
		}
	}
	return min(low, h.End), nil
}

// parseTime reads a time as a browser's field sends it, in UTC, or in milliseconds since 1970.
func parseTime(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ms, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, &problem{Status: http.StatusBadRequest, Title: "This is no time", Detail: "Write it as 2026-01-31T08:00 in UTC, with a zone as 2026-01-31T08:00:00+01:00, or in milliseconds since 1970."}
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// download passes a range of a partition on, as lines of JSON.
func (v *visit) download() error {
	name, q := v.named("topic"), v.r.URL.Query()
	r, err := v.request(v.r.Context(), http.MethodGet, path("/v1/topics/%s/partitions/%s/events", name, orZero(q.Get("partition")))+query("offset", q.Get("from"), "max", q.Get("max")), nil)
	if err != nil {
		return &problem{Status: http.StatusBadRequest, Title: "The range is not valid", Detail: err.Error()}
	}
	r.Header.Set("Accept", "application/x-ndjson")
	file := &attachment{w: v.w, name: name + ".ndjson", instead: answer{header: http.Header{}}}
	v.c.cfg.API.ServeHTTP(file, r)
	if file.instead.status != 0 {
		return file.instead.problem()
	}
	file.WriteHeader(http.StatusOK) // an empty file, if nothing was written
	return nil
}

// attachment has a browser save what it is sent as a file. An error is not sent: the answer instead
// keeps it, so that a page can show it.
type attachment struct {
	w       http.ResponseWriter
	name    string
	begun   bool   // the file's headers were sent
	instead answer // until then it has the headers
}

func (a *attachment) Header() http.Header {
	if a.begun {
		return a.w.Header()
	}
	return a.instead.header
}

func (a *attachment) WriteHeader(status int) {
	switch {
	case a.begun:
	case a.instead.status != 0 || status != http.StatusOK:
		a.instead.WriteHeader(status)
	default:
		a.begun = true
		maps.Copy(a.w.Header(), a.instead.header)
		a.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": a.name}))
		a.w.WriteHeader(status)
	}
}

func (a *attachment) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.begun {
		return a.w.Write(p)
	}
	return a.instead.Write(p)
}

// FlushError is for http.ResponseController.
func (a *attachment) FlushError() error {
	if !a.begun {
		return nil
	}
	return http.NewResponseController(a.w).Flush()
}

// Unwrap is for http.ResponseController.
func (a *attachment) Unwrap() http.ResponseWriter { return a.w }

// live passes the topic's events on as they are published (server-sent events).
func (v *visit) live() error {
	r, err := v.request(v.r.Context(), http.MethodGet, path("/v1/topics/%s/events", v.named("topic")), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	if id := v.r.Header.Get("Last-Event-ID"); id != "" {
		r.Header.Set("Last-Event-ID", id)
	}
	v.c.cfg.API.ServeHTTP(v.w, r)
	return nil
}
