package certificate

import (
	"strings"
	"testing"
)

// The rules are those of the examples in Kafka's documentation of ssl.principal.mapping.rules, and
// of KIP-371.
func TestRulesMakeNamesOfSubjects(t *testing.T) {
	const first = `RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/`
	for _, c := range []struct {
		rules         []string
		subject, want string // "": refused
	}{
		{nil, "CN=billing,O=Example", "CN=billing,O=Example"},
		{[]string{"DEFAULT"}, "CN=billing,O=Example", "CN=billing,O=Example"},
		{[]string{first}, "CN=kafka,OU=ServiceUsers,O=Unknown", "kafka"},
		{[]string{first}, "CN=kafka,OU=Others", ""},
		{[]string{first, `RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L`, `RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L`, "DEFAULT"}, "CN=Admin,OU=Hosts,O=a,L=b,ST=c,C=d", "admin@hosts"},
		{[]string{first, `RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L`, "DEFAULT"}, "cn=Kafka1,ou=SME,dc=mycp", "kafka1"},
		{[]string{first, "DEFAULT"}, "O=x", "O=x"},
		{[]string{`RULE:^CN=(.*)$/$1/U`}, "CN=straße 1", "STRAßE 1"},
		{[]string{`RULE:CN=a/x/`}, "CN=abc", ""}, // the whole subject must match
		{[]string{`RULE:^CN=(.*)$/$1x/`}, "CN=a", "ax"},
		{[]string{`RULE:^CN=(.*)$/a$2/`}, "CN=a", ""},
		{[]string{`RULE:^CN=([^\/]*)\/(.*)$/$2\/$1/`}, "CN=a/b", "b/a"},
		{[]string{`RULE:^CN=(.*)$//`}, "CN=a", ""},
	} {
		names, err := NewNames(c.rules)
		if err != nil {
			if c.want != "" {
				t.Errorf("%q: %v", c.rules, err)
			}
			continue
		}
		if got, err := names.of(c.subject); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q of %q: %q, %v; want %q", c.rules, c.subject, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "RULE", "RULE:^CN=(.*)$", "RULE:^CN=(.*)$/$1", "RULE:^CN=(.*$/$1/", "RULE:^CN=(.*)$/$1/X", "RULE:^CN=(.*)$/$1/L,DEFAULT", "default", `RULE:^CN=(.*)$/a$2/`, `RULE:^CN=(.*)$/$x/`} {
		if _, err := NewNames([]string{bad}); err == nil || !strings.Contains(err.Error(), "rule") {
			t.Errorf("the rule %q: %v", bad, err)
		}
	}
}
