package console

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type groupInfo struct {
	Name, State, Type string
	Generation        int64
	Members           []struct {
		ID, Client, Host string
		Partitions       map[string][]int
	}
}

type committed struct {
	Offsets []struct {
		Topic     string
		Partition int64
		Offset    int64
		EndOffset int64 `json:"end_offset"`
		Lag       int64
		Metadata  string
	}
	Lag int64
}

type groupsPage struct {
	Prefix string
	Groups []groupInfo
	Lags   map[string]any // those that the metrics have: of the groups that lag most
	More   int            // groups that the page does not show
}

// listMost is how many rows a list shows; a prefix finds the others.
const listMost = 500

func (v *visit) groups() error {
	var all struct{ Groups []groupInfo }
	if err := v.get("/v1/groups", &all); err != nil {
		return err
	}
	p := groupsPage{Prefix: v.r.URL.Query().Get("prefix"), Lags: map[string]any{}}
	for _, n := range v.c.cfg.History.look(storeLeast).lag {
		p.Lags[n.Name] = n.Value
	}
	for _, g := range all.Groups {
		switch {
		case !strings.HasPrefix(g.Name, p.Prefix):
		case len(p.Groups) < listMost:
			p.Groups = append(p.Groups, g)
		default:
			p.More++
		}
	}
	v.show(http.StatusOK, "groups", "Groups", p)
	return nil
}

type groupPage struct {
	groupInfo
	committed
	MayReset, MayDelete bool
	Topics              []string // with committed offsets
	Preview             *resetPreview
}

// resetPreview says what a reset would mean, before it is done.
type resetPreview struct {
	Topic, To, At  string
	Rows           []resetRow
	Again, Skipped int64
}

type resetRow struct{ Partition, Now, Then, Change int64 }

func (v *visit) group() error {
	name := v.named("group")
	p, err := v.groupPage(name)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "group", "Group "+name, p)
	return nil
}

func (v *visit) groupPage(name string) (*groupPage, error) {
	var p groupPage
	if err := v.get(path("/v1/groups/%s", name), &p.groupInfo); err != nil {
		return nil, err
	}
	if err := v.get(path("/v1/groups/%s/offsets", name), &p.committed); err != nil {
		return nil, err
	}
	for _, o := range p.Offsets {
		if !slices.Contains(p.Topics, o.Topic) {
			p.Topics = append(p.Topics, o.Topic)
		}
	}
	p.MayReset, p.MayDelete = v.may(http.MethodPut, path("/v1/groups/%s/offsets", name)), v.may(http.MethodDelete, path("/v1/groups/%s", name))
	return &p, nil
}

// resetGroup shows what a reset would mean, and does it when it is confirmed. What is done is what
// was shown: the offsets of the preview are in the form.
func (v *visit) resetGroup() error {
	name, form := v.named("group"), v.r.PostForm
	topic := form.Get("topic")
	back := pagePath("/console/groups/%s", name)
	if form.Get("confirm") == "" {
		p, err := v.groupPage(name)
		if err != nil {
			return err
		}
		if p.Preview, err = v.previewReset(p, topic, form.Get("to"), form.Get("at")); err != nil {
			return err
		}
		v.show(http.StatusOK, "group", "Group "+name, p)
		return nil
	}
	type target struct {
		Topic     string `json:"topic"`
		Partition int64  `json:"partition"`
		Offset    int64  `json:"offset"`
	}
	var targets []target
	for _, text := range form["offset"] {
		partition, offset, ok := strings.Cut(text, ":")
		t := target{Topic: topic}
		var err, err2 error
		t.Partition, err = strconv.ParseInt(partition, 10, 64)
		t.Offset, err2 = strconv.ParseInt(offset, 10, 64)
		if !ok || err != nil || err2 != nil {
			return &problem{Status: http.StatusBadRequest, Title: "The offsets of the form are damaged"}
		}
		targets = append(targets, t)
	}
	if err := v.do(http.MethodPut, path("/v1/groups/%s/offsets", name), map[string]any{"offsets": targets}, nil); err != nil {
		return err
	}
	return v.done(back, fmt.Sprintf("The offsets of %d partitions of topic %s were set.", len(targets), topic))
}

// previewReset computes where each partition would go.
func (v *visit) previewReset(p *groupPage, topic, to, at string) (*resetPreview, error) {
	var t topicInfo
	if err := v.get(path("/v1/topics/%s", topic), &t); err != nil {
		return nil, err
	}
	preview := &resetPreview{Topic: topic, To: to, At: at}
	now := make(map[int64]int64) // by partition
	for _, o := range p.Offsets {
		if o.Topic == topic {
			now[o.Partition] = o.Offset
		}
	}
	var since map[int64]int64
	if to == "time" {
		ms, err := parseTime(at)
		if err != nil {
			return nil, err
		}
		if since, err = v.offsetsAt(p.Name, topic, t.Holds, ms); err != nil {
			return nil, err
		}
	}
	for _, h := range t.Holds {
		row := resetRow{Partition: h.Partition, Now: h.First}
		if committed, is := now[h.Partition]; is {
			row.Now = committed
		}
		switch to {
		case "start":
			row.Then = h.First
		case "end":
			row.Then = h.End
		case "offset":
			n, err := strconv.ParseInt(strings.TrimSpace(at), 10, 64)
			if err != nil {
				return nil, &problem{Status: http.StatusBadRequest, Title: "This is no offset", Detail: "An offset is a number such as 1200, not " + strconv.Quote(at) + "."}
			}
			row.Then = min(max(n, h.First), h.End)
		case "time":
			row.Then = since[h.Partition]
		default:
			return nil, &problem{Status: http.StatusBadRequest, Title: "Choose where the group continues"}
		}
		row.Change = row.Then - row.Now
		if row.Change < 0 {
			preview.Again -= row.Change
		} else {
			preview.Skipped += row.Change
		}
		preview.Rows = append(preview.Rows, row)
	}
	return preview, nil
}

// resetPage is how many offsets the answer to a reset lists.
const resetPage = 1000

// offsetsAt finds the first events of partitions that are not older than a time, by dry runs of a
// reset.
func (v *visit) offsetsAt(group, topic string, holds []held, ms int64) (map[int64]int64, error) {
	type target struct {
		Topic     string `json:"topic"`
		Partition int64  `json:"partition"`
		Timestamp int64  `json:"timestamp"`
	}
	found := make(map[int64]int64, len(holds))
	for page := range slices.Chunk(holds, resetPage) {
		targets := make([]target, len(page))
		for i, h := range page {
			targets[i] = target{topic, h.Partition, max(ms, 0)}
		}
		var answer committed
		err := v.do(http.MethodPut, path("/v1/groups/%s/offsets", group), map[string]any{"offsets": targets, "dry_run": true}, &answer)
		if err != nil {
			return nil, err
		}
		for _, o := range answer.Offsets {
			found[o.Partition] = o.Offset
		}
	}
	return found, nil
}

func (v *visit) deleteGroup() error {
	name := v.named("group")
	if err := v.do(http.MethodDelete, path("/v1/groups/%s", name), nil, nil); err != nil {
		return err
	}
	return v.done("/console/groups", "Group "+name+" and its offsets were deleted.")
}
