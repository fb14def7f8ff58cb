package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// manualCmd prints the manual page weir(1), in the macros of man(7): what all commands and flags
// say of themselves. The packages have it.
type manualCmd struct{}

func (manualCmd) Run(t *terminal, model *kong.Application, version buildVersion) error {
	var page bytes.Buffer
	writeManual(&page, model, string(version))
	_, err := t.out.Write(page.Bytes())
	return err
}

func writeManual(w *bytes.Buffer, model *kong.Application, version string) {
	fmt.Fprintf(w, ".TH WEIR 1 \"\" \"weir %s\"\n", roff(version))
	fmt.Fprintf(w, ".SH NAME\nweir \\- durable event log on the storage that you run\n")
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B weir\n.I command\n[\\fIflags\\fR]\n")
	fmt.Fprintf(w, ".SH DESCRIPTION\n%s\n.PP\n%s\n", roff(model.Help),
		roff("Each flag can be given as a variable of the environment, whose name stands with it."))
	group := ""
	for _, command := range model.Leaves(true) {
		if of := command.ClosestGroup(); of != nil && of.Title != group {
			group = of.Title
			fmt.Fprintf(w, ".SH %s\n", strings.ToUpper(roff(strings.TrimSuffix(group, ":"))))
		}
		fmt.Fprintf(w, ".SS weir %s\n%s\n", roff(command.Summary()), roff(command.Help))
		for _, paragraph := range strings.Split(command.Detail, "\n\n") {
			switch {
			case paragraph == "":
			case strings.HasPrefix(paragraph, " "): // it stays as it is
				fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(paragraph))
			default:
				fmt.Fprintf(w, ".PP\n%s\n", roff(paragraph))
			}
		}
		for _, argument := range command.Positional {
			fmt.Fprintf(w, ".TP\n%s\n%s\n", roff(argument.Summary()), roff(argument.Help))
		}
		for _, flags := range command.AllFlags(true) {
			for _, flag := range flags {
				if flag.Name != "help" && flag.Name != "version" { // which all have
					fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n%s\n", roff(flag.String()), roff(kong.DefaultHelpValueFormatter(flag.Value)))
				}
			}
		}
	}
	fmt.Fprintf(w, ".SH EXIT STATUS\n")
	for _, of := range exitMeanings {
		fmt.Fprintf(w, ".TP\n%d\n%s\n", of.code, roff(of.means))
	}
}

// roff escapes a text: a backslash and a hyphen mean something to roff anywhere, a dot and an
// apostrophe at the beginning of a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(strings.TrimRight(text, " \n"))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
