// Command pageserver shows how the client and server libraries are used: one
// process serves the pages of a file in place, several processes fetch them
// over rdmad and put the file together again.
//
//	pageserver serve --root-file FILE            on the node that has the file
//	pageserver fetch --node NODE --out COPY    on another
//	pageserver demo                            both, within "rdmad sandbox"
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// commands are the subcommands. fetch-worker is what fetch starts.
var commands = map[string]func(context.Context, []string) error{
	"serve":        serveCommand,
	"fetch":        fetchCommand,
	"fetch-worker": workerCommand,
	"demo":         demoCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: pageserver serve|fetch|demo [flags]; see: pageserver COMMAND -h")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "pageserver: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// newFlags returns the flag set of a subcommand. Parsing ends the program when
// the command line is wrong.
func newFlags(name string) *flag.FlagSet {
	return flag.NewFlagSet("pageserver "+name, flag.ExitOnError)
}
