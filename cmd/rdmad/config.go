package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/config"
)

// defaultConfig is where packages install the configuration.
const defaultConfig = "/etc/rdmad/config.toml"

// configFlags say which configuration a command is about.
type configFlags struct {
	file string
	set  []string
}

// add adds the flags to a command; instead is as of configFlag.
func (f *configFlags) add(c *cobra.Command, instead string) {
	configFlag(c, &f.file, instead)
	c.Flags().StringArrayVar(&f.set, "set", nil, "a `section.key=value` that counts over the file and the environment; may be repeated")
}

// sources returns what the configuration is made of.
func (f *configFlags) sources() config.Sources {
	return config.Sources{File: f.file, Environ: os.Environ(), Set: f.set}
}

// load reads and checks the configuration. Its errors are config.Errors, a configError or that ctx has ended.
func (f *configFlags) load(ctx context.Context) (*config.Loaded, error) {
	l, err := f.sources().Load(ctx)
	return l, unreadConfig(err)
}

// configFlag adds the flag that names the configuration file. Without it that is defaultConfig, unless instead says what.
func configFlag(c *cobra.Command, file *string, instead string) {
	usage := "the configuration `file`"
	if instead != "" {
		usage += " (default: " + instead + ")"
	}
	c.Flags().StringVarP(file, "config", "c", defaultConfig, usage)
	if instead != "" {
		c.Flags().Lookup("config").DefValue = "" // which help would say, too
	}
}

// daemonsConfig is what commands look at that are about the daemon, if it runs.
const daemonsConfig = "what the daemon has, or without one " + defaultConfig

// unreadConfig makes a configError of the error of a file that could not be read, unless the user has lost patience.
func unreadConfig(err error) error {
	if _, refused := err.(config.Errors); err == nil || refused || errors.Is(err, context.Canceled) {
		return err
	}
	return &configError{err}
}

func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check, show, compare and explain configurations",
		Long: "Check a configuration, show what counts and why, compare the running daemon with a file, or print an\n" +
			"example with every key, its meaning, its range and its default. docs/config.md has the same as a page.",
		Example: "  rdmad config example > config.toml\n  rdmad config check -c config.toml\n  rdmad config diff",
		RunE:    chooseCommand,
	}
	c.AddCommand(newConfigCheck(), newConfigShow(), newConfigDiff(), newConfigExplainMemory(), newConfigExample(), newConfigDocs())
	return c
}

func newConfigExample() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration with every key at its default, explained",
		Long: "Print a configuration with every key at its default, its meaning and its range. It means the same as\n" +
			"an empty file.",
		Example: "  rdmad config example > config.toml",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), config.Example())
			return err
		},
	}
}

func newConfigDocs() *cobra.Command {
	return &cobra.Command{
		Use:   "docs",
		Short: "Print the reference of all keys as Markdown",
		Long: "Print the reference of all keys as Markdown: type, default, range, meaning, and whether a reload applies\n" +
			"a change or only a restart. It is what docs/config.md has.",
		Example: "  rdmad config docs",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), config.Docs())
			return err
		},
	}
}
