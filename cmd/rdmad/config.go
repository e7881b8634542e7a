package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/config"
)

// defaultConfig is where packages install the configuration.
const defaultConfig = "/etc/rdmad/config.toml"

// configFlag adds the flag that names the configuration file.
func configFlag(c *cobra.Command, file *string) {
	c.Flags().StringVarP(file, "config", "c", defaultConfig, "the configuration `file`")
}

// loadConfig reads and checks a configuration and returns its bytes too. Its
// errors are config.Errors or a configError.
func loadConfig(file string) (*config.Config, []byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, &configError{fmt.Errorf("read configuration: %w", err)}
	}
	defer f.Close()
	// One byte more than is allowed, for Parse to refuse it.
	data, err := io.ReadAll(io.LimitReader(f, config.MaxFileSize+1))
	if err != nil {
		return nil, nil, &configError{fmt.Errorf("read configuration: %w", err)}
	}
	cfg, err := config.Parse(file, data)
	return cfg, data, err
}

func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, or print an example",
		RunE:  chooseCommand,
	}
	c.AddCommand(newConfigCheck(), newConfigExample())
	return c
}

// checked is the outcome of a check as JSON.
type checked struct {
	File   string           `json:"file"`
	OK     bool             `json:"ok"`
	Digest string           `json:"digest,omitempty"`
	Errors []checkedProblem `json:"errors,omitempty"`
}

type checkedProblem struct {
	Line   int    `json:"line"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
}

func newConfigCheck() *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration: print all problems, or ok and its digest",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, _, err := loadConfig(file)
			if !asJSON {
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "ok %s\n", cfg.Digest())
				return err
			}
			result := checked{File: file, OK: err == nil}
			var refused config.Errors
			switch {
			case err == nil:
				result.Digest = cfg.Digest()
			case !errors.As(err, &refused):
				return err
			}
			for _, e := range refused {
				result.Errors = append(result.Errors, checkedProblem{e.Line, e.Key, e.Reason})
			}
			if err := writeJSON(c.OutOrStdout(), result); err != nil {
				return err
			}
			if !result.OK {
				return statusError(exitUsage)
			}
			return nil
		},
	}
	configFlag(c, &file)
	jsonFlag(c, &asJSON)
	return c
}

func newConfigExample() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration with every key at its default, explained",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), config.Example())
			return err
		},
	}
}
