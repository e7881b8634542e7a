package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Tell whether the lab can run on this machine",
		Long:  "check ends with status 0 if lab run can work here, and with 3 and the reason if not.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			missing, err := possible(c.Context())
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				fmt.Fprintf(c.OutOrStdout(), "lab run can work here; it installs %s first\n", strings.Join(missing, " "))
				return nil
			}
			fmt.Fprintln(c.OutOrStdout(), "lab run can work here")
			return nil
		},
	}
}

// possible returns the packages that are to be installed first, or why the lab
// cannot run.
func possible(ctx context.Context) ([]string, error) {
	no := func(format string, args ...any) ([]string, error) {
		return nil, &statusError{statusNoLab, fmt.Errorf("the lab cannot run: "+format, args...)}
	}
	if platform := runtime.GOOS + "/" + runtime.GOARCH; platform != "linux/amd64" {
		return no("it needs linux/amd64, this is %s", platform)
	}
	for _, name := range []string{"apt-get", "apt-cache", "dpkg-query", "dpkg"} {
		if _, err := exec.LookPath(name); err != nil {
			return no("it needs Debian's package tools, and %s is not in PATH: use a Debian 12 or newer, or a container of it", name)
		}
	}
	missing, err := listPackages(ctx)
	if err != nil {
		return no("%w", err)
	}
	if len(missing) > 0 && os.Geteuid() != 0 {
		var lines []string
		for _, args := range installCommands(missing) {
			lines = append(lines, "sudo "+strings.Join(args, " "))
		}
		return no("packages are missing; install them with: %s", strings.Join(lines, " && "))
	}
	return missing, nil
}
