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
			c.Args = func(_ *cobra.Command, args []string) error {
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
