package cli

import "github.com/alecthomas/kong"

// helpCmd is in the list of commands. `weir help COMMAND` is `weir COMMAND --help`.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

// printHelp shows, of weir itself, its commands in groups, and not the commands that these have.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	options.NoExpandSubcommands = ctx.Selected() == nil
	return kong.DefaultHelpPrinter(options, ctx)
}
