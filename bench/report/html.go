package report

import (
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/weir-log/weir/bench/run"
)

//go:embed report.html
var page string

// HTML writes the report as one file that asks nothing of any host.
func HTML(w io.Writer, r run.Result) error {
	t, err := template.New("report").Funcs(template.FuncMap{"headings": func() []string { return headings }, "columns": columns, "bars": bars, "seconds": seconds, "notes": notes}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{"Result": r, "Tables": Tables(r), "Systems": Systems(r)})
}

const (
	barHeight = 26
	barWidth  = 560
	barName   = 220
)

// bars draws the events a second of the rows, with the spread of their runs.
func bars(rows []Row) template.HTML {
	most := 0.0
	for _, row := range rows {
		if _, _, high := Spread(row, PerSecond); row.Problem == "" {
			most = max(most, high)
		}
	}
	if most == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg role="img" aria-label="events a second" viewBox="0 0 %d %d" width="%d">`, barName+barWidth+110, barHeight*len(rows), barName+barWidth+110)
	for i, row := range rows {
		y := i * barHeight
		label := template.HTMLEscapeString(row.Name() + " " + row.Rate)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, barName-8, y+17, label)
		if row.Problem != "" {
			fmt.Fprintf(&b, `<text class="bad" x="%d" y="%d">%s</text>`, barName, y+17, template.HTMLEscapeString(row.Problem))
			continue
		}
		low, median, high := Spread(row, PerSecond)
		at := func(v float64) float64 { return barName + barWidth*v/most }
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d"/><path d="M%.1f %d H%.1f"/><text x="%.1f" y="%d">%.0f</text>`,
			barName, y+5, at(median)-barName, barHeight-10, at(low), y+barHeight/2, at(high), at(high)+6, y+17, median)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// seconds draws the events of each second of a row's first clean run: where it stalled, and whether
// it was steady.
func seconds(row Row) template.HTML {
	if row.Problem != "" {
		return ""
	}
	all := row.Runs[0].Figures.Seconds
	most := int64(1)
	for _, n := range all {
		most = max(most, n)
	}
	var points strings.Builder
	for i, n := range all {
		fmt.Fprintf(&points, "%.1f,%.1f ", 200*float64(i)/float64(max(1, len(all)-1)), 30-28*float64(n)/float64(most))
	}
	return template.HTML(fmt.Sprintf(`<svg role="img" aria-label="events in each second" viewBox="0 0 200 32" width="200"><polyline points="%s"/></svg>`, strings.TrimSpace(points.String())))
}
