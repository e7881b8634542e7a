package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// addStandard adds the commands that cobra has for every program, and makes them refuse
// what is no command instead of answering with a help text and success.
func addStandard(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			help := c.Run
			c.Run = func(c *cobra.Command, args []string) { help(c, belowRoot(root, args)) }
			c.Args = func(_ *cobra.Command, args []string) error {
				args = belowRoot(root, args)
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return fmt.Errorf("no command is called %q", strings.Join(args, " "))
				}
				return nil
			}
		case "completion":
			c.Args, c.RunE = cobra.ArbitraryArgs, chooseCommand
		}
	}
}

// belowRoot takes the name of the program itself away from in front of those of its commands.
func belowRoot(root *cobra.Command, names []string) []string {
	if len(names) > 0 && names[0] == root.Name() {
		return names[1:]
	}
	return names
}
