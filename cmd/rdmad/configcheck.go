package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/config"
)

// checked is the outcome of a check as JSON.
type checked struct {
	File   string `json:"file"`
	OK     bool   `json:"ok"`
	Digest string `json:"digest,omitempty"`
	// Warnings are about what is allowed and perhaps not meant.
	Warnings []string         `json:"warnings,omitempty"`
	Errors   []checkedProblem `json:"errors,omitempty"`
}

// checkedProblem has the line in the file or, of a problem of a variable or a flag, its
// name.
type checkedProblem struct {
	Line   int    `json:"line,omitempty"`
	From   string `json:"from,omitempty"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
}

func newConfigCheck() *cobra.Command {
	var f configFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration: print all problems, or ok and its digest",
		Long: "Check a configuration as \"rdmad run\" would, with the environment. All problems are printed at once, each\n" +
			"with its place: file:line: key: reason, and the exit status is 2. If there are none it prints ok and the\n" +
			"digest of the effective values, which rdmad status has too and which is the same for two files that mean\n" +
			"the same. Names of users and groups are looked up, so check it where it is used.",
		Example: "  rdmad config check -c config.toml\n  rdmad config check --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := f.load(c.Context())
			if !asJSON {
				if err != nil {
					return err
				}
				for _, w := range cfg.Warnings() {
					fmt.Fprintf(c.ErrOrStderr(), "rdmad: warning: %s\n", w)
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "ok %s\n", cfg.Digest())
				return err
			}
			result := checked{File: f.file, OK: err == nil}
			var refused config.Errors
			switch {
			case err == nil:
				result.Digest, result.Warnings = cfg.Digest(), cfg.Warnings()
			case !errors.As(err, &refused):
				return err
			}
			for _, e := range refused {
				p := checkedProblem{Line: e.Line, Key: e.Key, Reason: e.Reason}
				if e.Line == 0 {
					p.From = e.File
				}
				result.Errors = append(result.Errors, p)
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
	f.add(c, "")
	jsonFlag(c, &asJSON)
	return c
}
