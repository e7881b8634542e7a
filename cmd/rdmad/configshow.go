package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/config"
)

// shown is the effective configuration as JSON.
type shown struct {
	File   string         `json:"file"`
	Digest string         `json:"digest"`
	Values []config.Value `json:"values"`
}

func newConfigShow() *cobra.Command {
	var f configFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Print the effective values, and where each is from",
		Long: "Print every key with its effective value as TOML, and in a comment where that is from: the default, a\n" +
			"line of the file, a variable of the environment, or a flag.",
		Example: "  rdmad config show\n  RDMAD_LOG_LEVEL=debug rdmad config show --set limits.workers=64",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := f.load(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), shown{f.file, cfg.Digest(), cfg.Values()})
			}
			return printValues(c.OutOrStdout(), cfg)
		},
	}
	f.add(c, "")
	jsonFlag(c, &asJSON)
	return c
}

// printValues writes values as a TOML file with comments.
func printValues(out io.Writer, cfg *config.Loaded) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# digest %s\n", cfg.Digest())
	last := ""
	for _, v := range cfg.Values() {
		table, key, _ := strings.Cut(v.Path, ".")
		if table != last {
			name, _, list := strings.Cut(table, "[")
			if list {
				name = "[" + name + "]"
			}
			fmt.Fprintf(&b, "\n[%s]\n", name)
			last = table
		}
		line := key + " = " + tomlValue(v.Value)
		fmt.Fprintf(&b, "%-40s # %s\n", line, v.Origin)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// tomlValue writes a value as TOML would: JSON is the same for what a configuration has.
func tomlValue(v any) string {
	if v == nil {
		return "-"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
