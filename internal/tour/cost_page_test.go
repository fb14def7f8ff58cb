package tour

import "testing"

// weir cost asks a server, and computes with the page's file of prices.
func TestTheCostPageShowsWhatHappens(t *testing.T) {
	stage{
		page: "../../docs/cost.md", env: []string{"WEIR_STORE=sqlite:weir.db"}, types: true, saves: true,
		named:  []string{"weir cost --server", "weir cost --for 1s --server"},
		before: map[string]func(*shell){"weir cost --server": (*shell).begins},
	}.replay(t)
}
