package main

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// socketFlag adds the flag that every command has that attaches to a daemon.
func socketFlag(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", "", "the daemon's socket (default: $RDMAD_SOCKET, or else /run/rdmad/rdmad.sock)")
}

// jsonFlag adds the flag for output that programs read.
func jsonFlag(c *cobra.Command, on *bool) {
	c.Flags().BoolVar(on, "json", false, "print JSON")
}

// choiceFlag adds a flag that takes one of some words, which the shell may complete.
func choiceFlag(c *cobra.Command, value *string, flag, standard, usage string, words ...string) {
	c.Flags().StringVar(value, flag, standard, usage+": "+strings.Join(words, ", "))
	// It fails for a flag that there is not.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// checkChoice refuses what is none of the words of a choiceFlag. Empty means that the flag
// was not given.
func checkChoice(flag, value string, words ...string) error {
	if value != "" && !slices.Contains(words, value) {
		return usagef("--%s %q: want one of %s", flag, value, strings.Join(words, ", "))
	}
	return nil
}

// writeJSON prints a value as indented JSON.
func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// isScreen reports whether a file is a terminal of which the size is known: serial consoles often have none.
func isScreen(f *os.File) bool {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil && size.Col > 0 && size.Row > 0
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
