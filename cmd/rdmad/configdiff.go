package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/bundle"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
)

// difference is a comparison as JSON.
type difference struct {
	File    string          `json:"file"`
	Running string          `json:"running_digest"`
	Wanted  string          `json:"digest"`
	Changes []config.Change `json:"changes"`
}

func newConfigDiff() *cobra.Command {
	var f configFlags
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff [FILE]",
		Short: "Compare the running daemon with a file: what would change, and how",
		Long: "Compare what the running daemon uses with a file, by default the one that it was started with, and with this\n" +
			"environment: which keys would change, and whether a reload applies them or only a restart.",
		Example: "  rdmad config diff\n  rdmad config diff new.toml --json",
		Args:    wantArgs(0, 1, "at most one file"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				f.file = args[0]
			} else if !c.Flags().Changed("config") {
				started := bundle.AskStarted(c.Context(), attach.SocketPath(socket))
				if err := started.Again(); err != nil {
					return &configError{fmt.Errorf("%w: name a file to compare with: rdmad config diff FILE", err)}
				}
				f.file = cmp.Or(started.Source, f.file)
			}
			wanted, err := f.load()
			if err != nil {
				return err
			}
			raw, err := look.Ask(c.Context(), socket, "rdmad-config-diff")
			if err != nil {
				return err
			}
			started, err := bundle.StartedOf(raw)
			if err != nil {
				return err
			}
			running := started.InForce
			d := difference{f.file, running.Digest(), wanted.Digest(), config.Compare(running, wanted.Config)}
			if d.Changes == nil {
				d.Changes = []config.Change{}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), d)
			}
			return printDifference(c.OutOrStdout(), &d)
		},
	}
	f.add(c)
	socketFlag(c, &socket)
	jsonFlag(c, &asJSON)
	return c
}

func printDifference(out io.Writer, d *difference) error {
	var b strings.Builder
	if len(d.Changes) == 0 {
		fmt.Fprintf(&b, "no difference, digest %s\n", d.Wanted)
	}
	printChanges(&b, d.Changes)
	_, err := io.WriteString(out, b.String())
	return err
}

// printChanges writes changes as a table.
func printChanges(b *strings.Builder, changes []config.Change) {
	t := table.New("KEY", "RUNNING", "FILE", "NEEDS")
	for _, c := range changes {
		t.Row(c.Path, tomlValue(c.Old), tomlValue(c.New), c.Applies())
	}
	t.PrintRows(b)
}
