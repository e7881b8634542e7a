package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// version is set by the linker in releases: -X main.version=v1.2.3.
var version string

// versions are the numbers that must match between programs.
type versions struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// ABI is the layout of shared memory, and Protocol the conversation of
	// workers with the daemon.
	ABI      string `json:"abi"`
	Protocol int    `json:"protocol"`
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := versions{
				Version: buildVersion(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
				ABI: fmt.Sprintf("%d.%d", shm.ABIMajor, shm.ABIMinor), Protocol: attach.Protocol,
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "rdmad %s (shared memory ABI %s, worker protocol %d, %s, %s)\n",
				v.Version, v.ABI, v.Protocol, v.Go, v.Platform)
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// buildVersion returns what the linker was told, or else what the Go command
// recorded, or else "dev".
func buildVersion() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "dev"
}
