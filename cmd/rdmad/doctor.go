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
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/cmd/rdmad/bundle"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/cmd/rdmad/table"
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
			e := f.env(c.Context())
			found := doctor.Run(c.Context(), e)
			err := context.Cause(c.Context())
			switch { // what was not waited for is no finding
			case err != nil && errors.Is(e.ConfigErr, context.Canceled):
				return e.ConfigErr // it says which file was waited for
			case err != nil:
				return err
			}
			if f.json {
				err = writeJSON(c.OutOrStdout(), found)
			} else {
				_, err = io.WriteString(c.OutOrStdout(), doctor.Text(plainFindings(found)))
			}
			if worst := doctor.Worst(found); err == nil && worst != doctor.OK {
				err = statusError(doctorStatus(worst))
			}
			return err
		},
	}
	configFlag(c, &f.config, daemonsConfig)
	c.Flags().StringVar(&f.socket, "socket", "", "the daemon's socket (default: $RDMAD_SOCKET, or else node.socket of the configuration)")
	c.Flags().StringVar(&f.peer, "peer", "", "a `node` to look at closely: its link, its address and the paths to it")
	jsonFlag(c, &f.json)
	return c
}

// plainFindings are findings for a terminal: daemons, certificates and errors of either are quoted in them.
func plainFindings(found []doctor.Finding) []doctor.Finding {
	list := slices.Clone(found)
	for i := range list {
		f := &list[i]
		f.Found, f.Remedy = plainLines(f.Found), plainLines(f.Remedy)
	}
	return list
}

// plainLines is table.Plain for several lines, as of problems of a configuration.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = table.Plain(lines[i])
	}
	return strings.Join(lines, "\n")
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

// subject is the configuration that a check-up is about.
type subject struct {
	// cfg is never nil: it is the default one if err says why there is none.
	cfg  *config.Config
	from string
	err  error
	// inForce: it is what the daemon has in force. err is then what is wrong with what the daemon would read now, and file that;
	// both are nil if that is not known.
	inForce bool
	file    *config.Config
	// socket is where the daemon has said it; empty: that of cfg is its socket.
	socket string
}

// load returns what the daemon that runs has in force, or else its file, or the default one; or the file that was named.
func (f *doctorFlags) load(ctx context.Context) subject {
	s := ofSources(ctx, config.Sources{File: f.config, Environ: os.Environ()})
	socket := f.socketOf(s.cfg)
	started := bundle.AskStarted(ctx, socket)
	switch {
	case f.configNamed:
		return f.named(ctx, s, started)
	case started.InForce != nil:
		return inForce(ctx, s, started, socket)
	}
	return fromFile(ctx, s, started)
}

// named is the file that the user has named, s as this command reads it: as the daemon would, if it is the daemon's own.
func (f *doctorFlags) named(ctx context.Context, s subject, started look.Started) subject {
	if file, err := filepath.Abs(f.config); err == nil && file == started.Source && started.Again() == nil {
		return ofSources(ctx, started.Sources(f.config))
	}
	return s
}

// inForce is what the daemon on socket has in force, beside what it would read now.
func inForce(ctx context.Context, s subject, started look.Started, socket string) subject {
	in := subject{cfg: started.InForce, from: "what is in force, of " + started.Source, inForce: true, socket: socket}
	if again := started.Again(); again != nil {
		in.from = fmt.Sprintf("what is in force, as %v", again)
		return in
	}
	if over := started.Over(); over != "" {
		in.from += ", " + over
	}
	file := fromFile(ctx, s, started)
	if in.err = file.err; in.err == nil {
		in.file = file.cfg
	}
	return in
}

// fromFile is the file that the daemon was started with, or s if that is not known.
func fromFile(ctx context.Context, s subject, started look.Started) subject {
	again := started.Again()
	switch {
	case again != nil:
		return subject{cfg: config.Default(), from: started.Source, err: again}
	case started.Source != "":
		return ofSources(ctx, started.Sources(started.Source))
	}
	return s
}

// ofSources loads a configuration.
func ofSources(ctx context.Context, from config.Sources) subject {
	l, err := from.Load(ctx)
	if err != nil {
		return subject{cfg: config.Default(), from: from.File, err: unreadConfig(err)}
	}
	return subject{cfg: l.Config, from: from.File}
}

// env collects what the checks look at.
func (f *doctorFlags) env(ctx context.Context) *doctor.Env {
	s := f.load(ctx)
	e := &doctor.Env{
		Root: os.DirFS("/"), OpenNode: openNode, Dial: dial, Writable: func(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil },
		Config: s.cfg, ConfigErr: s.err, ConfigFile: s.from, ConfigNamed: f.configNamed, InForce: s.inForce, NextConfig: s.file,
		Built: verbs.Built, Version: version.Version, Peer: f.peer,
	}
	var why error
	e.Devices, _, why, e.DevicesErr = rdmaDevices(e.Root)
	if verbs.Built && why != nil && len(e.Devices) > 0 {
		e.DevicesErr = why
	}
	e.Socket, e.SocketNamed = cmp.Or(s.socket, f.socketOf(e.Config)), f.socket != ""
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
