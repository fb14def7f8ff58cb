package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/use/group"
)

// projectionRun is a run of a projection as the door describes it.
type projectionRun struct {
	Number, Lag int64
	Version     int
	Categories  []string
	Group       string
	Behind      *int64 `json:"behind_ms"`
}

type described struct {
	Name   string
	Paused bool
	Run    projectionRun
	Next   *projectionRun
}

func TestProjectionsAreDescribedAndControlled(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("orders")
	d.grow("orders", "a", 0, 10)
	const totals = "/v1/projections/totals"
	describe := func() (v described) {
		t.Helper()
		d.get(totals).into(200, &v)
		return v
	}
	var list struct{ Projections []string }
	if d.get("/v1/projections").into(200, &list); len(list.Projections) > 0 {
		t.Errorf("without projections there are %q", list.Projections)
	}
	for _, route := range []string{"GET " + totals, "DELETE " + totals, "POST " + totals + "/pause", "POST " + totals + "/resume", "POST " + totals + "/rebuild"} {
		var method, path string
		fmt.Sscan(route, &method, &path)
		d.do(method, path, "").refused(404, "unknown_projection")
	}
	p, err := d.categories.EnsureProjection(t.Context(), "totals", 3, []string{"orders"})
	if err != nil {
		t.Fatal(err)
	}
	if d.get("/v1/projections").into(200, &list); len(list.Projections) != 1 || list.Projections[0] != "totals" {
		t.Errorf("there are %q", list.Projections)
	}
	if v := describe(); v.Name != "totals" || v.Paused || v.Next != nil || v.Run.Number != 1 || v.Run.Version != 3 || v.Run.Lag != 10 || v.Run.Group != p.Run.Group || len(v.Run.Categories) != 1 {
		t.Errorf("before any event is handled: %+v", v)
	}
	topic, err := d.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.groups.Commit(t.Context(), group.Commit{Group: p.Run.Group, Generation: -1, Offsets: []group.Committed{
		{TopicPartition: group.TopicPartition{Topic: topic.ID}, Name: "orders", Offset: 4, LeaderEpoch: -1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if v := describe(); v.Run.Lag != 6 {
		t.Errorf("after four events of ten the lag is %d", v.Run.Lag)
	}
	d.do("POST", totals+"/pause", "").want(204, "")
	d.do("POST", totals+"/pause", "").want(204, "")
	if v := describe(); !v.Paused {
		t.Errorf("paused: %+v", v)
	}
	d.do("POST", totals+"/resume", "").want(204, "")
	d.do("POST", totals+"/rebuild", "").want(204, "")
	d.do("POST", totals+"/rebuild", "").want(204, "")
	if v := describe(); v.Paused || v.Run.Lag != 6 || v.Next == nil || v.Next.Number != 2 || v.Next.Version != 3 || v.Next.Lag != 10 || v.Next.Group == v.Run.Group {
		t.Errorf("resumed, and rebuilt: %+v", v)
	}
	d.do("DELETE", totals, "").want(204, "")
	d.get(totals).refused(404, "unknown_projection")
	d.get("/v1/groups/"+p.Run.Group).refused(404, "unknown_group")
}

func TestAProjectionThatAProgramWorksOnIsNotDeleted(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("orders")
	p, err := d.categories.EnsureProjection(t.Context(), "totals", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := d.asJSON("POST", "/v1/groups/"+p.Run.Group+"/members", `{"topics":["orders"]}`); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	d.do("DELETE", "/v1/projections/totals", "").refused(409, "group_not_empty")
	var v described
	if d.get("/v1/projections/totals").into(200, &v); v.Run.Group != p.Run.Group || v.Run.Categories != nil {
		t.Errorf("after the refused deletion: %+v", v)
	}
}
