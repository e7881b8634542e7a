package main

import (
	"cmp"
	"context"
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
	Kept    []kept          `json:"kept,omitempty"`
}

// kept is a key that the daemon has from its flags or its environment, and that the file has in vain.
type kept struct {
	config.Override
	File any `json:"file"`
}

// diffTool is what the daemon knows the command by.
const diffTool = "rdmad-config-diff"

func newConfigDiff() *cobra.Command {
	var f configFlags
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff [FILE]",
		Short: "Compare the running daemon with a file: what would change, and how",
		Long: "Compare what the running daemon uses with a file, by default the one that it was started with: which keys would\n" +
			"change, and whether a reload applies them or only a restart. The flags and the environment that the daemon was\n" +
			"started with count over the file, as they do when it reads it; with --set it can be seen what others would do.",
		Example: "  rdmad config diff\n  rdmad config diff new.toml --json",
		Args:    wantArgs(0, 1, "at most one file"),
		RunE: func(c *cobra.Command, args []string) error {
			named := c.Flags().Changed("config")
			if len(args) > 0 && named {
				return usagef("%q and --config %q: only one file can be compared with", args[0], f.file)
			}
			started := bundle.AskStarted(c.Context(), attach.SocketPath(socket))
			if err := context.Cause(c.Context()); err != nil {
				return err // the daemon has not answered, and the file has nothing to do with that
			}
			if len(args) > 0 {
				f.file = args[0]
			} else if !named {
				if started.Source == "" {
					// Nobody says which file is meant, most likely as no daemon runs.
					if _, err := look.Ask(c.Context(), socket, diffTool); err != nil {
						return err
					}
				}
				if err := started.Again(); err != nil {
					return &configError{fmt.Errorf("%w: name a file to compare with: rdmad config diff FILE", err)}
				}
				f.file = cmp.Or(started.Source, f.file)
			}
			sources := started.Sources(f.file)
			sources.Set = append(sources.Set, f.set...)
			wanted, err := sources.Load(c.Context())
			if err != nil {
				return unreadConfig(err)
			}
			raw, err := look.Ask(c.Context(), socket, diffTool)
			if err != nil {
				return err
			}
			if started, err = look.StartedOf(raw); err != nil {
				return err
			}
			running := started.InForce
			d := difference{f.file, running.Digest(), wanted.Digest(), config.Compare(running, wanted.Config), nil}
			d.Kept = inVain(started.Overrides, wanted)
			if d.Changes == nil {
				d.Changes = []config.Change{}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), d)
			}
			return printDifference(c.OutOrStdout(), &d)
		},
	}
	f.add(c, "the one that the daemon was started with")
	socketFlag(c, &socket)
	jsonFlag(c, &asJSON)
	return c
}

// inVain returns what the file of a configuration has otherwise than the daemon's flags and environment.
func inVain(overrides []config.Override, wanted *config.Loaded) (list []kept) {
	values := make(map[string]any)
	for _, v := range wanted.Values() {
		values[v.Path] = v.Value
	}
	for _, o := range overrides {
		if file, ok := wanted.InFile(o.Path); ok && tomlValue(file) != tomlValue(values[o.Path]) {
			list = append(list, kept{o, file})
		}
	}
	return list
}

func printDifference(out io.Writer, d *difference) error {
	var b strings.Builder
	if len(d.Changes) == 0 {
		fmt.Fprintf(&b, "no difference, digest %s\n", d.Wanted)
	}
	printChanges(&b, d.Changes)
	for _, k := range d.Kept {
		fmt.Fprintf(&b, "%s: the daemon has it from its %s, so that what the file says, %s, does not count\n", k.Path, k.From, tomlValue(k.File))
	}
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
