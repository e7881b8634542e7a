package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/supervisor"
	"github.com/rdmad/rdmad/internal/tenant"
	"github.com/rdmad/rdmad/server"
)

// DefaultFile is the configuration file of a Config that names none.
const DefaultFile = "/etc/rdmad/config.toml"

// Config says what node to run.
type Config struct {
	// File is the configuration file, which is that of rdmad; empty means DefaultFile. The
	// environment counts over it (RDMAD_SECTION_KEY).
	File string
	// Set are settings that count over both, each "section.key=value".
	Set []string
	// Server are the options of the server that register gets.
	Server []server.Option
	// RegisterLimit is how long a core that replaces another, because of an upgrade, may take until
	// register has returned. Then the program before it is started again. 0 means 10 s, and less is refused. At other times
	// it is 10 minutes, after which the core is started again, or none with node.hang_limit = "0s".
	RegisterLimit time.Duration
}

// Register offers the methods of the node with the server that it is given, by Handle and
// HandleStream. Nobody at another node is answered before it has returned. If it fails, panics or ends the process, so does
// the node's start. It is called again, with another server, when the daemon has given the domain new memory, and
// by each new core. Should the daemon do so again before it has returned, Handle has a server.ErrClosed: return that, and it is
// called once more. The context ends when the core stops.
type Register func(ctx context.Context, s *server.Server) error

// Run runs a node until ctx ends; then it lets it drain, and returns nil. SIGHUP reloads
// the configuration, and SIGUSR2 replaces the core by the program that is now where this one was started
// from; see "rdmad reload" and "rdmad upgrade", which work as with any node.
//
// Errors: what is wrong with c or the configuration, that another daemon uses the node's socket, or that
// the core cannot start, which has said why on standard error. In the core Run does not return: it
// ends the process. It may be called once.
func Run(ctx context.Context, c Config, register Register) error {
	if register == nil {
		return errors.New("node: no function that registers methods")
	}
	if inCore {
		os.Exit(core(ctx, c, register))
	}
	if c.RegisterLimit < 0 { // no upgrade would ever succeed
		return fmt.Errorf("node: RegisterLimit is %v: want a time, or 0 for 10 s", c.RegisterLimit)
	}
	sources := config.Sources{File: c.File, Environ: os.Environ(), Set: c.Set}
	if sources.File == "" {
		sources.File = DefaultFile
	}
	loaded, err := sources.Load(ctx)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w (print one to begin with: rdmad config example)", err)
	}
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	source, err := filepath.Abs(sources.File) // for whoever reads it elsewhere
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	cfg := loaded.Config
	sources.File = source // also if the program goes to another directory
	err = supervisor.Run(ctx, supervisor.Setup{
		Config: cfg, Source: source, Overrides: loaded.Overrides(), Reload: sources.Reload,
		CoreArgs: append([]string{programArgs}, os.Args[1:]...), ReadyLimit: c.RegisterLimit, Log: nodelog.New(cfg, os.Stderr, "supervisor"),
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

// core is the process that serves. It returns its exit status.
func core(ctx context.Context, c Config, register Register) int {
	err := daemon.Core(ctx, tenant.Of(tenant.Register(register), c.Server...))
	status := daemon.ExitStatus(err)
	if err != nil && status != handoff.StatusHandOver {
		fmt.Fprintln(os.Stderr, "node:", err)
	}
	return status
}
