package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/version"
	"github.com/rdmad/rdmad/shm"
)

// versions are what tells one program from another, and the numbers that must match
// between programs.
type versions struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Providers are the fabrics that are built in.
	Providers []string `json:"providers"`
	// ABI is the layout of shared memory, Protocol the conversation of workers with the
	// daemon, and Peer that of daemons.
	ABI      string `json:"abi"`
	Protocol int    `json:"protocol"`
	Peer     int    `json:"peer_protocol"`
	// Depot and Vault are what a core keeps for the next one.
	Depot int    `json:"depot"`
	Vault string `json:"vault"`
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: "Print the version, the commit that it was built from, the fabrics that are built in, and the numbers\n" +
			"that must match: the ABI between a daemon and its workers (the part before the dot), the worker protocol\n" +
			"likewise, the peer protocol between two nodes, depot and vault between a core and the one that replaces it.",
		Example: "  rdmad version\n  rdmad version --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := ownVersions()
			if asJSON {
				return writeJSON(c.OutOrStdout(), v)
			}
			return v.print(c.OutOrStdout())
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// print writes them for people.
func (v versions) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "rdmad %s (revision %s, %s, %s)\nproviders: %s\n"+
		"shared memory ABI %s, worker protocol %d, peer protocol %d, depot %d, vault %s\n",
		v.Version, v.Revision, v.Go, v.Platform, strings.Join(v.Providers, ", "),
		v.ABI, v.Protocol, v.Peer, v.Depot, v.Vault)
	return err
}

func ownVersions() versions {
	d := version.Own()
	v := versions{
		Version: d.Version, Revision: version.Revision(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Providers: []string{"tcp"},
		ABI:       fmt.Sprintf("%d.%d", shm.ABIMajor, shm.ABIMinor), Protocol: d.Attach, Peer: d.Peer, Depot: d.Depot, Vault: d.Vault,
	}
	if verbs.Built {
		v.Providers = append(v.Providers, "verbs")
	}
	if libfabric.Built {
		v.Providers = append(v.Providers, "libfabric")
	}
	return v
}
