package daemontest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/internal/version"
)

// helpers are what a test binary can be started as besides the core.
var helpers = map[string]func(args []string) error{}

// Helper makes the test binary run f when Spawn starts it under name. Call it
// before Main.
func Helper(name string, f func(args []string) error) { helpers[name] = f }

// Stay is what a Helper does that is to be there until it is killed, or told to end. A select without cases would end the
// process as a deadlock, if it is built without cgo and waits for nothing else.
func Stay() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	return nil
}

// tenants are services that cores have within themselves, by a variable of their environment.
var tenants = map[string]daemon.Tenant{}

// Tenant makes the cores that are started while the environment has the variable env have a service
// within themselves. Call it before Main.
func Tenant(env string, t daemon.Tenant) { tenants[env] = t }

// core is what the command's core is.
func core() error {
	if len(os.Args) > 2 && os.Args[2] == "--"+handoff.ProbeFlag {
		return version.Probe(os.Stdout)
	}
	if dir := os.Getenv(AllocatedEnv); dir != "" {
		tellAllocated(dir)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var within []daemon.Tenant
	for env, t := range tenants {
		if os.Getenv(env) != "" {
			within = append(within, t)
		}
	}
	return daemon.Core(ctx, within...)
}

// Main is the TestMain of a package that starts daemons: the test binary is also
// the core of the daemons under test, and any Helper.
func Main(m *testing.M) {
	if len(os.Args) > 1 {
		run := map[string]func() error{handoff.CoreCommand: core}
		for name, f := range helpers {
			run[name] = func() error { return f(os.Args[2:]) }
		}
		if f := run[os.Args[1]]; f != nil {
			if err := f(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(daemon.ExitStatus(err))
			}
			os.Exit(0)
		}
	}
	// Under the race detector a process sleeps for a second before it exits,
	// unless told otherwise; the cores of every test would.
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
	}
	leaktest.Main(m)
}
