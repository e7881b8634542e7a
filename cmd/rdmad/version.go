package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/shm"
)

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
				Version: daemon.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
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
