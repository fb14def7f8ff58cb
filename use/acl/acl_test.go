package acl

import (
	"errors"
	"strings"
	"testing"
)

func TestRulesAllowWhatKafkaAllows(t *testing.T) {
	topic := func(op Operation, name string) Rule { return Rule{Kind: Topic, Name: name, Operation: op} }
	under := func(r Rule) Rule { r.Prefixed = true; return r }
	not := func(r Rule) Rule { r.Deny = true; return r }
	for name, c := range map[string]struct {
		rules Rules
		op    Operation
		kind  Kind
		name  string
		want  bool
	}{
		"no rules":                            {nil, Read, Topic, "a", false},
		"the same":                            {Rules{topic(Read, "a")}, Read, Topic, "a", true},
		"another name":                        {Rules{topic(Read, "a")}, Read, Topic, "ab", false},
		"another operation":                   {Rules{topic(Read, "a")}, Write, Topic, "a", false},
		"another kind":                        {Rules{topic(Read, "a")}, Read, Group, "a", false},
		"a prefix":                            {Rules{under(topic(Read, "a"))}, Read, Topic, "ab", true},
		"not a prefix":                        {Rules{under(topic(Read, "ab"))}, Read, Topic, "a", false},
		"everything":                          {Rules{topic(Read, "*")}, Read, Topic, "x", true},
		"a prefix that is a star":             {Rules{under(topic(Read, "*"))}, Read, Topic, "x", false},
		"all operations":                      {Rules{topic(All, "a")}, AlterConfigs, Topic, "a", true},
		"reading implies describing":          {Rules{topic(Read, "a")}, Describe, Topic, "a", true},
		"writing implies describing":          {Rules{topic(Write, "a")}, Describe, Topic, "a", true},
		"creating does not":                   {Rules{topic(Create, "a")}, Describe, Topic, "a", false},
		"describing does not imply reading":   {Rules{topic(Describe, "a")}, Read, Topic, "a", false},
		"altering settings implies them":      {Rules{topic(AlterConfigs, "a")}, DescribeConfigs, Topic, "a", true},
		"altering does not imply settings":    {Rules{topic(Alter, "a")}, DescribeConfigs, Topic, "a", false},
		"deny wins":                           {Rules{topic(All, "a"), not(topic(Read, "a"))}, Read, Topic, "a", false},
		"deny wins, whatever the order":       {Rules{not(topic(Read, "a")), topic(All, "a")}, Read, Topic, "a", false},
		"deny by prefix":                      {Rules{topic(All, "*"), not(under(topic(All, "secret.")))}, Read, Topic, "secret.a", false},
		"deny of reading leaves describing":   {Rules{topic(Read, "a"), not(topic(Read, "a"))}, Describe, Topic, "a", true},
		"deny of something else":              {Rules{topic(All, "*"), not(topic(All, "b"))}, Read, Topic, "a", true},
		"deny alone allows nothing elsewhere": {Rules{not(topic(Read, "b"))}, Read, Topic, "a", false},
	} {
		if got := c.rules.May(c.op, c.kind, c.name); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSomeResourceMayBeAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		rules Rules
		want  bool
	}{
		"none":                     {nil, false},
		"one topic":                {Rules{{Kind: Topic, Name: "a", Operation: Write}}, true},
		"one topic to read":        {Rules{{Kind: Topic, Name: "a", Operation: Read}}, false},
		"a group":                  {Rules{{Kind: Group, Name: "a", Operation: Write}}, false},
		"forbidden":                {Rules{{Kind: Topic, Name: "a", Operation: Write}, {Kind: Topic, Name: "a", Operation: Write, Deny: true}}, false},
		"forbidden everywhere":     {Rules{{Kind: Topic, Name: "a", Operation: Write}, {Kind: Topic, Name: "*", Operation: All, Deny: true}}, false},
		"forbidden by prefix":      {Rules{{Kind: Topic, Name: "ab", Operation: Write}, {Kind: Topic, Name: "a", Prefixed: true, Operation: All, Deny: true}}, false},
		"a part is forbidden":      {Rules{{Kind: Topic, Name: "a", Prefixed: true, Operation: Write}, {Kind: Topic, Name: "ab", Prefixed: true, Operation: All, Deny: true}}, true},
		"all but one is forbidden": {Rules{{Kind: Topic, Name: "*", Operation: Write}, {Kind: Topic, Name: "a", Operation: All, Deny: true}}, true},
	} {
		if got := c.rules.MayAny(Write, Topic); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestNamesOfOperationsAndKinds(t *testing.T) {
	for op := All; op <= IdempotentWrite; op++ {
		for _, name := range []string{op.String(), strings.ToLower(op.String()), strings.ReplaceAll(strings.ToLower(op.String()), "_", "-")} {
			if found, ok := ParseOperation(name); !ok || found != op {
				t.Errorf("%s is %v, %v", name, found, ok)
			}
		}
	}
	for kind := Topic; kind <= TransactionalID; kind++ {
		if found, ok := ParseKind(kind.String()); !ok || found != kind {
			t.Errorf("%s is %v, %v", kind, found, ok)
		}
	}
	for _, name := range []string{"", "UNKNOWN", "any", "reed"} {
		if op, ok := ParseOperation(name); ok {
			t.Errorf("%q is %v", name, op)
		}
		if kind, ok := ParseKind(name); ok {
			t.Errorf("%q is %v", name, kind)
		}
	}
}

// Who deletes rules says whose, from where, or about what: otherwise all would go.
func TestADeletionNamesSomething(t *testing.T) {
	text := "a"
	every := Filter{Kind: Any, Pattern: AnyPattern, Operation: Any, Effect: Any}
	kind, effect, operation := every, every, every
	kind.Kind, effect.Effect, operation.Operation = Topic, Deny, Read
	for _, f := range []Filter{every, kind, effect, operation} {
		if err := f.CheckDeletion(); !errors.Is(err, ErrTooWide) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	principal, host, name := every, every, every
	principal.Principal, host.Host, name.Name = &text, &text, &text
	for _, f := range []Filter{principal, host, name} {
		if err := f.CheckDeletion(); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
