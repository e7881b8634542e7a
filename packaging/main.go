// Command packaging builds the Debian and RPM packages of rdmad. It is a module of its
// own because of what it depends on; see docs/decisions/0028-packages.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.repository, "repository", "..", "the directory of the repository")
	flag.StringVar(&o.out, "out", "../bin/packages", "the directory that packages are written to")
	flag.StringVar(&o.version, "version", "", "the version of the packages (default: from git describe)")
	flag.StringVar(&o.revision, "revision", "", "the commit that this is (default: git's)")
	flag.StringVar(&o.arch, "arch", "", "the architecture, amd64 or arm64 (default: this machine's)")
	flag.StringVar(&o.only, "only", "", "build only the package of this name: rdmad or rdmad-rdma")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "packaging: there are no arguments, only flags; see -help")
		os.Exit(2)
	}
	if err := checkVersion(o.version); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(2)
	}
	o.say = func(text string) { fmt.Println(text) }
	if _, err := build(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}
