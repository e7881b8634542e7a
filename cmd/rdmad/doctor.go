package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/cmd/rdmad/bundle"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/doctor"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/version"
)

// doctorFlags are the flags of a check-up.
type doctorFlags struct {
	config, socket, peer string
	configNamed          bool
	json                 bool
}

func newDoctor() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps this node from working as configured",
		Long: "Check the configuration, the limits of the system, the RDMA devices, the running daemon if there\n" +
			"is one, and its peers. Every finding is OK, WARN or FAIL, the worst last, with what to do about it.\n" +
			"Run it as the user, and with the limits, that the daemon has: what it finds holds for its own\n" +
			"process as long as no daemon runs.\n\n" +
			"Exit status: 0 if all is OK, 1 with warnings, 2 with failures. A wrong command line is 2 too, but\n" +
			"prints no findings.",
		Example: "  rdmad doctor -c config.toml\n" +
			"  rdmad doctor --peer b        # and whether the daemons can talk",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.configNamed = c.Flags().Changed("config")
			found := doctor.Run(c.Context(), f.env(c.Context()))
			var err error
			if f.json {
				err = writeJSON(c.OutOrStdout(), found)
			} else {
				_, err = io.WriteString(c.OutOrStdout(), doctor.Text(found))
			}
			if worst := doctor.Worst(found); err == nil && worst != doctor.OK {
				err = statusError(doctorStatus(worst))
			}
			return err
		},
	}
	configFlag(c, &f.config)
	c.Flags().StringVar(&f.socket, "socket", "", "the daemon's socket (default: $RDMAD_SOCKET, or else node.socket of the configuration)")
	c.Flags().StringVar(&f.peer, "peer", "", "a `node` to look at closely: its link, its address and the paths to it")
	jsonFlag(c, &f.json)
	return c
}

// doctorStatus is the exit status for the worst finding.
func doctorStatus(worst doctor.Level) int {
	switch worst {
	case doctor.OK:
		return 0
	case doctor.Warn:
		return 1
	}
	return 2
}

// load returns the configuration that a check-up is about: that of the file that was named, or of the daemon that runs, or of
// the default file. what names it, and err says why it is the default one. It is never nil.
func (f *doctorFlags) load(ctx context.Context) (cfg *config.Config, what string, err error) {
	cfg, what, err = orDefault(f.config)
	if f.configNamed {
		return cfg, what, err
	}
	// The one that runs is the one that matters.
	started := bundle.AskStarted(ctx, f.socketOf(cfg))
	if started.Source == "" {
		return cfg, what, err
	}
	again := started.Again()
	switch {
	case again == nil:
		return orDefault(started.Source)
	case started.InForce != nil:
		return started.InForce, fmt.Sprintf("what is in force, as %v", again), nil
	}
	return config.Default(), started.Source, again
}

// orDefault returns the configuration of a file, or the default one and what is wrong.
func orDefault(file string) (cfg *config.Config, what string, err error) {
	if cfg, err = loadConfig(file); err != nil {
		cfg = config.Default()
	}
	return cfg, file, err
}

// env collects what the checks look at.
func (f *doctorFlags) env(ctx context.Context) *doctor.Env {
	e := &doctor.Env{
		Root: os.DirFS("/"), OpenNode: openNode, Dial: dial, Writable: func(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil },
		ConfigNamed: f.configNamed, Built: verbs.Built, Version: version.Version, Peer: f.peer,
	}
	e.Config, e.ConfigFile, e.ConfigErr = f.load(ctx)
	var why error
	e.Devices, _, why, e.DevicesErr = rdmaDevices(e.Root)
	if verbs.Built && why != nil && len(e.Devices) > 0 {
		e.DevicesErr = why
	}
	e.Socket, e.SocketNamed = f.socketOf(e.Config), f.socket != ""
	raw, err := look.Ask(ctx, e.Socket, "rdmad-doctor")
	if err == nil {
		e.Daemon, err = look.Parse(raw)
	}
	e.DaemonErr, e.Unanswered = err, errors.Is(err, look.ErrNoAnswer)
	return e
}

// socketOf returns where the daemon is to be found, as an absolute path if there is one.
func (f *doctorFlags) socketOf(cfg *config.Config) string {
	socket := cmp.Or(f.socket, os.Getenv(attach.SocketEnv), cfg.Node.Socket)
	if absolute, err := filepath.Abs(socket); err == nil {
		return absolute
	}
	return socket
}

// openNode opens a device node as libibverbs would, and closes it.
func openNode(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// dial connects to host:port and closes the connection.
func dial(ctx context.Context, address string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}
