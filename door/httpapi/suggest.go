package httpapi

import (
	"strings"
)

// shorten cuts a client's text for a message.
func shorten(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// suggest returns the end of a sentence about an unknown name: the most similar known name, or all
// of them.
func suggest(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(strings.ToLower(name), k, least); d < least {
			best, least = k, d
		}
	}
	switch {
	case best != "":
		return "; did you mean " + best + "?"
	case len(known) == 0:
		return "; it has none"
	default:
		return "; allowed are " + strings.Join(known, ", ")
	}
}

// distance is the edit distance of a and b. If their lengths differ by enough or more, it only
// returns enough.
func distance(a, b string, enough int) int {
	if len(a)-len(b) >= enough || len(b)-len(a) >= enough {
		return enough
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0]++
		for j := range len(b) {
			step := corner
			if a[i] != b[j] {
				step++
			}
			corner = row[j+1]
			row[j+1] = min(step, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
