package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func newExec() *cobra.Command {
	var dir string
	var env []string
	c := &cobra.Command{
		Use:   "exec [flags] -- PROGRAM [ARGUMENT]...",
		Short: "Run a program in the guest of the lab run around it",
		Long: "exec runs a program in the guest that " + addressEnv + " names, with the current directory, PATH, LANG, GO*\n" +
			"and RDMAD_* of the host. When exec ends, everything that the program has started is killed.\n" +
			"SIGQUIT is passed on to the program, so that go test's time limit shows its goroutines.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			to, err := parseAddress(os.Getenv(addressEnv))
			if err != nil {
				return err
			}
			if dir == "" {
				if dir, err = os.Getwd(); err != nil {
					return err
				}
			} else if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			return execInGuest(to, request{Args: args, Dir: dir, Env: guestEnvironment(os.Environ(), env, dir)})
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&dir, "dir", "", "current directory of the program (the same as here)")
	c.Flags().StringArrayVar(&env, "env", nil, "more of its environment, as NAME=VALUE")
	return c
}

// execInGuest runs a command in a guest with this process's standard files.
func execInGuest(to guestAddress, req request) error {
	c, err := dial(to, req)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			if s == syscall.SIGQUIT {
				_ = c.send(frameSignal, []byte{byte(syscall.SIGQUIT)}) // output reports a lost guest
				continue
			}
			// The end of the connection kills the program.
			os.Exit(statusSignalled + int(s.(syscall.Signal)))
		}
	}()
	if isTerminal(os.Stdin) {
		err = c.send(frameStdin, nil)
		if err != nil {
			return fmt.Errorf("the guest is gone: %w", err)
		}
	} else {
		go c.input(os.Stdin)
	}
	end, err := c.output(os.Stdout, os.Stderr)
	switch {
	case err != nil:
		return err
	case end.Reason != "":
		return &statusError{end.Status, errors.New(end.Reason)}
	case end.Status != 0:
		return &statusError{status: end.Status}
	}
	return nil
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
