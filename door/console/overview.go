package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-log/weir/internal/doctor"
)

// topMost is how many groups, queues and projections the overview shows.
const topMost = 8

type overviewPage struct {
	Operates bool
	Health   string // empty: the store answers
	Findings []doctor.Finding
	Topics   int
	Groups   []named
	Queues   []queueLine
	Behind   []named
	Ages     map[string]float64 // how many seconds a run of a projection is behind, by "NAME RUN"
	Seen     int64

	Store     storeState
	Processes []process // that serve Kafka clients on the store; empty: this one is alone
}

// queueLine is a queue in a list.
type queueLine struct {
	Name                          string
	Ready, Claimed, Waiting, Dead int64
	Delayed                       *int64  // nil: unknown
	Oldest                        float64 // seconds

	partial bool // a state with few messages may be missing among the numbers
}

// Num shows a number of messages. A 0 that may be a number that is missing is not shown.
func (q queueLine) Num(n int64) string {
	if n == 0 && q.partial {
		return "–"
	}
	return count(n)
}

// metricsMost is how many numbers of one kind the metrics have: the largest.
const metricsMost = 500

func (v *visit) overview() error {
	var topics struct{ Topics []topicInfo }
	if err := v.get("/v1/topics", &topics); err != nil && !forbidden(err) {
		return err
	}
	p := overviewPage{Operates: v.operates(), Topics: len(topics.Topics), Ages: map[string]float64{}}
	if v.c.cfg.Ready != nil {
		if err := v.c.cfg.Ready(); err != nil {
			p.Health = "The store does not answer."
			if p.Operates {
				p.Health = err.Error()
			}
		}
	}
	last := v.c.cfg.History.look(storeLeast)
	if !last.at.IsZero() {
		p.Seen = last.at.UnixMilli()
	}
	p.Groups = first(topMost, last.lag, func(n named) bool { return n.Value > 0 && v.may("GET", path("/v1/groups/%s", n.Name)) })
	p.Behind = first(topMost, last.projectionLag, func(n named) bool { return v.may("GET", path("/v1/projections/%s", n.Name)) })
	for _, n := range last.projectionAge {
		p.Ages[n.Name+" "+n.State] = n.Value
	}
	for _, q := range queueLines(last) {
		if len(p.Queues) < topMost && v.may("GET", path("/v1/queues/%s", q.Name)) {
			p.Queues = append(p.Queues, q)
		}
	}
	if p.Operates {
		p.Processes, p.Store = v.c.cfg.History.processes(), v.c.cfg.History.storeState()
		for _, f := range v.c.cfg.Findings {
			if f.Level != doctor.OK {
				p.Findings = append(p.Findings, f)
			}
		}
	}
	v.show(200, "overview", "Overview", p)
	return nil
}

// queueLines are the queues, first what an operator must see first: the most dead letters, then the
// oldest ready message, then the most ready messages.
func queueLines(s seen) []queueLine {
	index := map[string]int{}
	var all []queueLine
	for _, n := range s.messages {
		i, ok := index[n.Name]
		if !ok {
			i = len(all)
			index[n.Name] = i
			all = append(all, queueLine{Name: n.Name, partial: len(s.messages) >= metricsMost})
		}
		switch n.State {
		case "ready":
			all[i].Ready = int64(n.Value)
		case "claimed":
			all[i].Claimed = int64(n.Value)
		case "waiting":
			all[i].Waiting = int64(n.Value)
		case "delayed":
			delayed := int64(n.Value)
			all[i].Delayed = &delayed
		case "dead":
			all[i].Dead = int64(n.Value)
		}
	}
	for _, n := range s.oldest {
		if i, ok := index[n.Name]; ok {
			all[i].Oldest = n.Value
		}
	}
	slices.SortStableFunc(all, func(a, b queueLine) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Oldest, a.Oldest), cmp.Compare(b.Ready, a.Ready), strings.Compare(a.Name, b.Name))
	})
	return all
}

// first returns the elements of list for which take returns true, in order, at most so many as most
// says. It calls take, which checks the reader's rights, for the first 50*most elements only: who
// may see few of very many may be shown fewer than there are.
func first[T any](most int, list []T, take func(T) bool) (some []T) {
	for i, x := range list {
		if len(some) == most || i == 50*most {
			break
		}
		if take(x) {
			some = append(some, x)
		}
	}
	return some
}

// plots answers with the series of the last hour, for a script.
func (v *visit) plots() error {
	if group := v.r.URL.Query().Get("group"); group != "" {
		if !v.may("GET", path("/v1/groups/%s", group)) {
			return &problem{Status: 403, Title: "You may not see this group"}
		}
		return v.json(v.c.cfg.History.lagOf(group))
	}
	if !v.operates() {
		return &problem{Status: 403, Title: "The plots are about the whole process", Detail: "They need the rights that /metrics needs."}
	}
	return v.json(v.c.cfg.History.series())
}

func (v *visit) json(answer any) error {
	encoded, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	v.made = made{200, "application/json", encoded}
	return nil
}

// forbidden reports whether the API refused a request because the user has no right to it.
func forbidden(err error) bool {
	return refusedAs(err, http.StatusForbidden)
}

// unknown reports whether what was asked for does not exist.
func unknown(err error) bool {
	return refusedAs(err, http.StatusNotFound)
}

func refusedAs(err error, status int) bool {
	var p *problem
	return errors.As(err, &p) && p.Status == status
}
