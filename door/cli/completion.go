package cli

import (
	"fmt"
	"slices"
	"strings"

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

func (c *completeCmd) Run(t *terminal, model *kong.Application) error {
	for _, word := range complete(model.Node, c.Words) {
		if _, err := fmt.Fprintln(t.out, word); err != nil {
			return err
		}
	}
	return nil
}

func complete(node *kong.Node, words []string) []string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "--" })
	if len(words) > 1 && words[0] == "help" { // of a command
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	typed := words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		for _, child := range node.Children {
			if child.Name == word {
				node = child
			}
		}
	}
	var found []string
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
