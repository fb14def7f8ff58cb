package console

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

type categoryInfo struct {
	Name, ID   string
	Partitions int64
	Retention  retention
}

type retention struct {
	Events *int64
	Age    *int64 `json:"age_ms"`
}

type streamInfo struct {
	Stream           string
	Version, First   int64
	Exists, Archived bool
}

func (v *visit) categories() error {
	var p struct{ Categories []string }
	if err := v.get("/v1/categories", &p); err != nil {
		return err
	}
	v.show(http.StatusOK, "categories", "Streams", p)
	return nil
}

type categoryPage struct {
	categoryInfo
	Prefix  string
	Streams []streamInfo
	Next    string
}

func (v *visit) category() error {
	name, q := v.named("category"), v.r.URL.Query()
	p := categoryPage{Prefix: q.Get("prefix")}
	at := path("/v1/categories/%s", name)
	if err := v.get(at, &p.categoryInfo); err != nil {
		return err
	}
	if err := v.get(at+"/streams"+query("prefix", p.Prefix, "after", q.Get("after"), "max", "100"), &p); err != nil {
		return err
	}
	v.show(http.StatusOK, "category", "Category "+name, p)
	return nil
}

type streamEvent struct {
	record
	Stream, ID, Type, Subject string
	Version                   int64
	Erased                    bool
	Tags                      []string
	Metadata                  []pair
}

// Correlations are the ids by which events of one business process find each other.
func (e streamEvent) Correlations() (ids []pair) {
	for _, m := range e.Metadata {
		if name := strings.ToLower(m.Name); strings.Contains(name, "correlation") || strings.Contains(name, "causation") {
			ids = append(ids, m)
		}
	}
	return ids
}

type streamPage struct {
	Category, Stream      string
	Version, First        int64
	Archived              bool
	Next                  *int64
	Events                []streamEvent
	Type                  string
	Backward              bool
	MayArchive, MayDelete bool
	Snapshot              *snapshot // the newest; nil: it was not asked for
}

// snapshot is a state of a stream that somebody saved.
type snapshot struct {
	Version int64
	record
}

func (v *visit) stream() error {
	p := streamPage{Category: v.named("category"), Stream: v.named("stream"), Type: v.r.URL.Query().Get("type")}
	q := v.r.URL.Query()
	p.Backward = q.Get("order") != "oldest"
	args := []string{"type", p.Type, "max", strconv.Itoa(pageEvents)}
	if p.Backward {
		args = append(args, "backward", "true", "to", q.Get("at"))
	} else {
		args = append(args, "from", q.Get("at"))
	}
	at := path("/v1/categories/%s/streams/%s", p.Category, p.Stream)
	if err := v.get(at+"/events"+query(args...), &p); err != nil {
		return err
	}
	if q.Has("snapshot") {
		p.Snapshot = &snapshot{}
		if err := v.get(at+"/snapshot", p.Snapshot); err != nil {
			return err
		}
		p.Snapshot.shorten()
	}
	p.MayArchive, p.MayDelete = v.may(http.MethodPost, at+"/archive"), v.may(http.MethodDelete, at)
	v.show(http.StatusOK, "stream", "Stream "+p.Stream, p)
	return nil
}

// changeStream archives, unarchives or deletes a stream. A deletion expects the version that the
// page showed.
func (v *visit) changeStream() error {
	category, stream, form := v.named("category"), v.named("stream"), v.r.PostForm
	at := path("/v1/categories/%s/streams/%s", category, stream)
	switch form.Get("do") {
	case "archive", "unarchive":
		if err := v.do(http.MethodPost, at+"/"+form.Get("do"), nil, nil); err != nil {
			return err
		}
		return v.done(pagePath("/console/streams/%s/%s", category, stream), "Done: "+form.Get("do")+".")
	case "delete":
		if err := v.confirmed(stream); err != nil {
			return err
		}
		if err := v.do(http.MethodDelete, at, nil, nil, "If-Match", strconv.Quote(form.Get("version"))); err != nil {
			return err
		}
		return v.done(pagePath("/console/streams/%s", category), "Stream "+stream+" was deleted.")
	}
	return &problem{Status: http.StatusBadRequest, Title: "The form does not say what to do"}
}

// tagged shows the events that have a tag.
func (v *visit) tagged() error {
	var p struct {
		Category, Tag string
		Events        []streamEvent
	}
	p.Category, p.Tag = v.named("category"), v.r.URL.Query().Get("tag")
	if err := v.get(path("/v1/categories/%s/events", p.Category)+query("tag", p.Tag), &p); err != nil {
		return err
	}
	v.show(http.StatusOK, "tagged", "Events with tag "+p.Tag, p)
	return nil
}

type projectionInfo struct {
	Name      string
	Paused    bool
	Run, Next *runInfo
	May       bool
}

// runInfo is a run of a projection.
type runInfo struct {
	Number, Lag int64
	Version     int64
	Categories  []string
	Group       string
	Behind      int64    `json:"behind_ms"`
	Left        *float64 `json:"-"` // seconds until it has handled all; nil: not known
	Handled     *int64   `json:"-"` // percent of what its categories hold; nil: not known
}

// measure sets how much of its categories a run has handled.
func (r *runInfo) measure(topics map[string]topicLine) {
	if r == nil || len(r.Categories) == 0 {
		return
	}
	all := int64(0)
	for _, name := range r.Categories {
		all += topics[name].Offsets
	}
	if all > 0 && r.Lag <= all {
		handled := 100 * (all - r.Lag) / all
		r.Handled = &handled
	}
}

// estimate sets how long a run needs for what is left.
func (r *runInfo) estimate(left *time.Duration) {
	if r != nil && left != nil {
		seconds := left.Seconds()
		r.Left = &seconds
	}
}

func (v *visit) projections() error {
	var names struct{ Projections []string }
	if err := v.get("/v1/projections", &names); err != nil {
		return err
	}
	var p struct {
		Projections []projectionInfo
		More        int
	}
	v.c.cfg.History.look(storeLeast)
	topics := v.c.cfg.History.topicLines()
	for i, name := range names.Projections {
		if i == pageEvents {
			p.More = len(names.Projections) - i
			break
		}
		var one projectionInfo
		if err := v.get(path("/v1/projections/%s", name), &one); unknown(err) {
			continue // deleted meanwhile
		} else if err != nil {
			return err
		}
		one.Run.estimate(v.c.cfg.History.left(name, "now"))
		one.Next.estimate(v.c.cfg.History.left(name, "next"))
		one.Next.measure(topics)
		one.May = v.may(http.MethodPost, path("/v1/projections/%s/pause", name))
		p.Projections = append(p.Projections, one)
	}
	v.show(http.StatusOK, "projections", "Projections", p)
	return nil
}

func (v *visit) changeProjection() error {
	name, action := v.named("projection"), v.r.PostForm.Get("do")
	switch action {
	case "pause", "resume", "rebuild":
		if err := v.do(http.MethodPost, path("/v1/projections/%s", name)+"/"+action, nil, nil); err != nil {
			return err
		}
		return v.done("/console/projections", "Projection "+name+": "+action+".")
	}
	return &problem{Status: http.StatusBadRequest, Title: "The form does not say what to do"}
}
