package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkFlags checks that the flags of a command are described.
func checkFlags(t *testing.T, c *cobra.Command) {
	t.Helper()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("%s: --%s is not described", c.CommandPath(), f.Name)
		}
	})
}
