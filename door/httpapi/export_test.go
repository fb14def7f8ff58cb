package httpapi

// Routes are the patterns of the API, with the parameters of each.
func Routes() (patterns []string) {
	for _, r := range api {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
