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

// What make lab-bench gives for its settings is taken, here over a fabric that needs no lab.
func TestSandboxSettings(t *testing.T) {
	f := newFixture(t)
	for _, args := range []string{"--idle busy", "--idle busy --group-max 1", "--idle busy --embedded", "--idle event --wait event --embedded"} {
		if r := f.run("rdmad sandbox", args+" -- true"); r.Status != 0 {
			t.Errorf("%s: status %d:\n%s", args, r.Status, r.stderr)
		}
	}
}
