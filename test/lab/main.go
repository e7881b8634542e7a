// Command lab boots a virtual machine whose Linux has rdma_rxe, RDMA in
// software, and runs programs of the host in it. Tests of code that talks to the
// kernel's verbs run anywhere that way. docs/lab.md says how it is used.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(execute(os.Args[1:]))
}

// execute runs a command line and returns the exit status.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	c, err := root.ExecuteC()
	status := statusFailed
	var s *statusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &s):
		status = s.status
		if s.err == nil {
			return status
		}
	case !started:
		status = statusUsage
		err = fmt.Errorf("%w\nTry: %s --help", err, c.CommandPath())
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", c.CommandPath(), err)
	return status
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "Run programs on a kernel with RDMA, in a virtual machine",
		Long: "lab boots a QEMU guest with a Debian kernel and rdma_rxe, RDMA in software. The guest sees the\n" +
			"files of the host, so that what is built outside runs inside:\n\n" +
			"  lab run -- go test -exec 'lab exec --' ./...\n\n" +
			"Exit status: that of the command, or 2 for a wrong command line, 124 after the time limit, 125 if\n" +
			"the lab itself failed, 126 and 127 if there was no such program, 128+n if it died of signal n.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newCheck(), newRun(), newExec(), newAgent())
	return root
}
