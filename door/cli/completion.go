package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

func (completionCmd) Help() string {
	return `Examples:

  source <(weir completion bash)
  weir completion zsh > "${fpath[1]}/_weir"
  weir completion fish > ~/.config/fish/completions/weir.fish`
}

// Each script asks weir itself for the words that can follow, so that it is never out of date.
var completionScripts = map[string]string{
	"bash": `_weir() {
  local IFS=$'\n'
  COMPREPLY=($(weir complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _weir weir
`,
	"zsh": `#compdef weir
_weir() {
  local -a found
  found=("${(@f)$(weir complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -- $found
}
compdef _weir weir
`,
	"fish": `complete -c weir -f -a '(weir complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

func (c *completionCmd) Run(t *terminal) error {
	_, err := fmt.Fprint(t.out, completionScripts[c.Shell])
	return err
}

// completeCmd prints the words that can replace the last one.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c *completeCmd) Run(ctx context.Context, t *terminal, model *kong.Application) error {
	words := slices.DeleteFunc(slices.Clone(c.Words), func(w string) bool { return w == "--" })
	if len(words) == 0 {
		words = []string{""}
	}
	before, typed := words[:len(words)-1], words[len(words)-1]
	found := complete(model.Node, before, typed)
	if !strings.HasPrefix(typed, "-") {
		found = append(found, c.names(ctx, model.Node, before, typed)...)
	}
	for _, word := range found {
		if _, err := fmt.Fprintln(t.out, word); err != nil {
			return err
		}
	}
	return nil
}

// commandIn finds the command that the first of words name, and the arguments that follow, without
// flags and their values.
func commandIn(node *kong.Node, words []string) (command *kong.Node, arguments []string) {
	if len(words) > 0 && words[0] == "help" { // of a command
		words = words[1:]
	}
	for i := 0; i < len(words); i++ {
		if name, isFlag := strings.CutPrefix(words[i], "--"); isFlag {
			if flag := flagOf(node, name); flag != nil && !flag.IsBool() {
				i++ // its value
			}
			continue
		}
		child := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == words[i] })
		if child >= 0 {
			node = node.Children[child]
			continue
		}
		arguments = append(arguments, words[i])
	}
	return node, arguments
}

// flagOf returns a flag of a command; nil: there is none of that name, or its value is joined to
// it.
func flagOf(node *kong.Node, name string) *kong.Flag {
	for _, flags := range node.AllFlags(true) {
		for _, flag := range flags {
			if flag.Name == name {
				return flag
			}
		}
	}
	return nil
}

// listings are the commands that list what an argument with the tag names can be, and which member
// of each element is its name; "": the elements are names.
var listings = map[string]struct{ command, member string }{
	"topic":      {"topic list", "name"},
	"group":      {"group list", "name"},
	"queue":      {"queue list", "name"},
	"category":   {"stream category list", ""},
	"projection": {"projection list", "name"},
	"key":        {"key list", "id"},
	"user":       {"user list", "name"},
}

// names returns what exists and can be the next argument: it asks the server that the words name,
// for a second. Without an answer there is nothing to complete.
func (c *completeCmd) names(ctx context.Context, root *kong.Node, before []string, typed string) (found []string) {
	command, arguments := commandIn(root, before)
	if len(before) > 0 && before[0] == "help" || len(command.Positional) == 0 {
		return nil
	}
	nth := min(len(arguments), len(command.Positional)-1)
	argument := command.Positional[nth]
	if len(arguments) > nth && !argument.IsSlice() {
		return nil // there is no such argument
	}
	kind := argument.Tag.Get("names")
	if kind == "parent" {
		kind = command.Parent.Name
	}
	listing, is := listings[kind]
	if !is {
		return nil
	}
	list, _ := commandIn(root, strings.Fields(listing.command))
	ask := append(strings.Fields(listing.command), "--output", "json")
	for i, word := range before {
		name, value, joined := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		flag := flagOf(list, name)
		switch {
		case !strings.HasPrefix(word, "--") || flag == nil || flag.IsBool():
		case joined:
			ask = append(ask, "--"+name, value)
		case i+1 < len(before):
			ask = append(ask, "--"+name, before[i+1])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var out bytes.Buffer
	if run(ctx, "", ask, &terminal{program: "weir", in: strings.NewReader(""), out: &out, err: io.Discard}, nil) != exitOK {
		return nil
	}
	var elements []json.RawMessage
	if json.Unmarshal(out.Bytes(), &elements) != nil {
		return nil
	}
	for _, element := range elements {
		var name string
		if listing.member == "" {
			_ = json.Unmarshal(element, &name) // what has no name is not completed
		} else {
			var members map[string]any
			_ = json.Unmarshal(element, &members)
			name, _ = members[listing.member].(string)
		}
		if name != "" && strings.HasPrefix(name, typed) && printable(name) == name {
			found = append(found, name)
		}
	}
	return found
}

// complete returns the commands, flags and fixed values that can follow the words in before, and
// begin with typed.
func complete(root *kong.Node, before []string, typed string) (found []string) {
	node, _ := commandIn(root, before)
	for _, child := range node.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, typed) {
			found = append(found, child.Name)
		}
	}
	for _, flags := range node.AllFlags(true) {
		for _, flag := range flags {
			if name := "--" + flag.Name; strings.HasPrefix(typed, "-") && strings.HasPrefix(name, typed) {
				found = append(found, name)
			}
		}
	}
	for _, argument := range node.Positional {
		for _, word := range argument.EnumSlice() {
			if word != "" && strings.HasPrefix(word, typed) {
				found = append(found, word)
			}
		}
	}
	return found
}
