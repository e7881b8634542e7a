//go:build docs

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/version"
)

func init() { taggedCommands = append(taggedCommands, newDocs()) }

// newDocs is the command that writes what packages install besides the program. It is
// in builds with the tag "docs" only, because of what it links.
func newDocs() *cobra.Command {
	return &cobra.Command{
		Use:    "docs DIR",
		Short:  "Write man pages and shell completions",
		Hidden: true,
		Args:   wantArgs(1, 1, "a directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := writeDocs(args[0]); err != nil {
				return fmt.Errorf("docs: %w", err)
			}
			return nil
		},
	}
}

// writeDocs writes man1, man5 and completions into a directory. Dates are
// SOURCE_DATE_EPOCH, if that is set.
func writeDocs(dir string) error {
	for _, sub := range []string{"man1", "man5", "completions"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	root := newRoot()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	header := &doc.GenManHeader{Section: "1", Source: "rdmad " + version.Version, Manual: "rdmad"}
	if err := doc.GenManTree(root, header, filepath.Join(dir, "man1")); err != nil {
		return err
	}
	page := configPage("rdmad "+version.Version, config.Reference())
	if err := os.WriteFile(filepath.Join(dir, "man5", "rdmad-config.5"), []byte(page), 0o644); err != nil {
		return err
	}
	for _, shell := range []struct {
		name  string
		write func(string) error
	}{
		{"rdmad.bash", func(name string) error { return root.GenBashCompletionFileV2(name, true) }},
		{"_rdmad", root.GenZshCompletionFile},
		{"rdmad.fish", func(name string) error { return root.GenFishCompletionFile(name, true) }},
	} {
		if err := shell.write(filepath.Join(dir, "completions", shell.name)); err != nil {
			return err
		}
	}
	return nil
}
