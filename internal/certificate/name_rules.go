package certificate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Names are what the owners of clients' certificates are called, by rules with the meaning of
// Kafka's setting ssl.principal.mapping.rules (KIP-371).
type Names struct{ rules []nameRule }

// nameRule makes a name of the subjects that it matches.
type nameRule struct {
	matches     *regexp.Regexp // nil: it matches everything, and the name is the subject
	replacement []part
	change      func(string) string
}

// part is a piece of a replacement: text, or a group of the pattern.
type part struct {
	text  string
	group int // if text is ""
}

// ruleForm is RULE:PATTERN/REPLACEMENT/ with an L or U after it. A slash in PATTERN or REPLACEMENT
// has a backslash before it.
var ruleForm = regexp.MustCompile(`^RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)$`)

// NewNames takes rules, of which the first that matches counts: DEFAULT, or
// RULE:PATTERN/REPLACEMENT/, where PATTERN is a regular expression for the whole subject and $1 in
// REPLACEMENT is its first group; an L or U after it makes small or capital letters. Without rules
// it is DEFAULT: the name is the subject.
//
// Kafka's patterns are those of Java, these are those of Go: they have no look-around and no
// back-references.
func NewNames(rules []string) (*Names, error) {
	n := new(Names)
	if len(rules) == 0 {
		rules = []string{"DEFAULT"}
	}
	for _, text := range rules {
		if text == "DEFAULT" {
			n.rules = append(n.rules, nameRule{})
			continue
		}
		r, err := parseRule(text)
		if err != nil {
			return nil, fmt.Errorf("the rule %q: %w", text, err)
		}
		n.rules = append(n.rules, r)
	}
	return n, nil
}

func parseRule(text string) (nameRule, error) {
	pieces := ruleForm.FindStringSubmatch(text)
	if pieces == nil {
		return nameRule{}, errors.New("it must be DEFAULT, RULE:PATTERN/REPLACEMENT/, or the same with L or U at the end; write / in the first two as \\/")
	}
	pattern, err := regexp.Compile("^(?:" + pieces[1] + ")$")
	if err != nil {
		return nameRule{}, err
	}
	r := nameRule{matches: pattern, change: map[string]func(string) string{"": func(s string) string { return s }, "L": strings.ToLower, "U": strings.ToUpper}[pieces[3]]}
	r.replacement, err = parseReplacement(pieces[2], pattern.NumSubexp())
	return r, err
}

// parseReplacement takes text with groups, such as $1@example. As in Java, a backslash stands
// before a character that is meant as it is.
func parseReplacement(text string, groups int) ([]part, error) {
	var all []part
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text):
			i++
			all = append(all, part{text: text[i : i+1]})
		case text[i] == '$':
			if i+1 == len(text) || text[i+1] < '0' || text[i+1] > '9' {
				return nil, errors.New("after $ there must be the number of a group, from 0 to 9")
			}
			i++
			group, _ := strconv.Atoi(text[i : i+1])
			if group > groups {
				return nil, fmt.Errorf("the replacement has $%d, and the pattern %d groups", group, groups)
			}
			all = append(all, part{group: group})
		default:
			all = append(all, part{text: text[i : i+1]})
		}
	}
	return all, nil
}

// Of returns the name of a certificate's owner.
func (n *Names) Of(c *x509.Certificate) (string, error) {
	subject, err := Subject(c)
	if err != nil {
		return "", err
	}
	return n.of(subject)
}

func (n *Names) of(subject string) (string, error) {
	for _, r := range n.rules {
		if r.matches == nil {
			return subject, nil
		}
		groups := r.matches.FindStringSubmatch(subject)
		if groups == nil {
			continue
		}
		var b strings.Builder
		for _, p := range r.replacement {
			if p.text == "" {
				b.WriteString(groups[p.group])
			}
			b.WriteString(p.text)
		}
		if b.Len() == 0 {
			return "", fmt.Errorf("the rule that matches the subject %q makes an empty name of it", subject)
		}
		return r.change(b.String()), nil
	}
	return "", fmt.Errorf("no rule matches the subject %q", subject)
}
