package httpapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/use/apikey"
)

// Every route that names a projection, and every one to come, is for keys that reach the
// projection's groups.
func TestProjectionsAreForKeysOfTheirGroups(t *testing.T) {
	door := lock(t, Config{})
	type step struct {
		pattern, path string
		admin         bool
		want          int // of a key in its rights
	}
	const at = "/v1/projections/totals"
	steps := []step{
		{"GET /v1/projections/{projection}", at, false, 200},
		{"POST /v1/projections/{projection}/pause", at + "/pause", true, 204},
		{"POST /v1/projections/{projection}/resume", at + "/resume", true, 204},
		{"POST /v1/projections/{projection}/rebuild", at + "/rebuild", true, 204},
		{"DELETE /v1/projections/{projection}", at, true, 204},
	}
	for _, rt := range api {
		pattern, _, _ := strings.Cut(rt.pattern, "?")
		if strings.Contains(pattern, "{projection}") && !slices.ContainsFunc(steps, func(s step) bool { return s.pattern == pattern && s.admin == (rt.needs.access == mayAdmin) }) {
			t.Errorf("%s is not tried, or for another access", rt.pattern)
		}
	}
	for _, c := range []struct {
		name string
		spec apikey.Spec
		in   bool
	}{
		{"everything", apikey.Spec{Access: admins}, true},
		{"everything, to read", apikey.Spec{Access: reads}, true},
		{"groups of projections", apikey.Spec{Access: admins, Groups: []string{"projection."}}, true},
		{"groups of this projection", apikey.Spec{Access: admins, Groups: []string{"projection.totals."}}, true},
		{"groups of a projection with a longer name", apikey.Spec{Access: admins, Groups: []string{"projection.totals.eu."}}, false},
		{"other groups", apikey.Spec{Access: admins, Groups: []string{"billing."}}, false},
		{"topics", apikey.Spec{Access: admins, Topics: []string{"totals"}}, false},
	} {
		_, secret := door.key(t, c.spec)
		if _, err := door.categories.EnsureProjection(t.Context(), "totals", 1, nil); err != nil {
			t.Fatal(err)
		}
		var list struct{ Projections []string }
		if w := door.bearer(secret, "GET", "/v1/projections", ""); w.Code == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
		}
		if slices.Contains(list.Projections, "totals") != c.in {
			t.Errorf("a key for %s lists %q", c.name, list.Projections)
		}
		for _, step := range steps {
			method, _, _ := strings.Cut(step.pattern, " ")
			want := step.want
			if !c.in || step.admin && !slices.Contains(c.spec.Access, apikey.Admin) {
				want = 403
			}
			if w := door.bearer(secret, method, step.path, ""); w.Code != want {
				t.Errorf("a key for %s, %s: %d %s, want %d", c.name, step.pattern, w.Code, w.Body, want)
			}
		}
	}
}
