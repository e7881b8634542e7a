package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/server"
)

// sandboxFlags are the flags of the command sandbox.
type sandboxFlags struct {
	options sandbox.Options
	// device and connect are keys of [verbs] that have flags of their own.
	device, connect string
}

func newSandbox() *cobra.Command {
	var s sandboxFlags
	c := &cobra.Command{
		Use:   "sandbox [flags] -- COMMAND [ARGUMENT ...]",
		Short: "Run a command between two nodes that exist only for it",
		Long: "Start two nodes, a and b, on this machine and an echo service on b, run a command, and stop\n" +
			"everything again; nothing is left behind. The command finds node a at $RDMAD_SOCKET, where\n" +
			"every client looks, node b at $RDMAD_SOCKET_B, and all processes in $RDMAD_SANDBOX_PIDS as\n" +
			"role=pid,... The sandbox ends with the command's exit status.",
		Example: "  rdmad sandbox -- rdmad bench call --clients 8 --depth 64\n" +
			"  rdmad sandbox --fabric verbs --verbs-device rxe0 --fabric-option timeout=18 -- rdmad bench call\n" +
			"  rdmad sandbox --fabric libfabric --fabric-option provider=shm -- rdmad bench call\n" +
			"  rdmad sandbox -- sh",
		Args: wantArgs(1, math.MaxInt, "a command after --"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.settle(c); err != nil {
				return err
			}
			return runSandbox(c.Context(), s.options, args)
		},
	}
	s.flags(c)
	return c
}

func (s *sandboxFlags) flags(c *cobra.Command) {
	f, o := c.Flags(), &s.options
	f.StringVar(&o.Settings.Fabric, "fabric", "tcp", "what moves the data: tcp, verbs, libfabric or auto")
	f.StringVar(&s.device, "verbs-device", "", "the RDMA device, with --fabric verbs or auto (default: the first with an active port)")
	f.StringVar(&s.connect, "verbs-connect", "", "how queue pairs are connected, with --fabric verbs or auto: oob or rdmacm (default: the daemon's)")
	f.StringToStringVar(&o.Settings.Verbs, "fabric-option", nil, "another `key=value` of [verbs], such as gid_index=3, or with --fabric libfabric of [libfabric], such as provider=shm; may be repeated")
	f.StringVar(&o.Settings.MaxGroupDelay, "max-group-delay", "", "by how much messages may be held back so that groups grow (default: not at all)")
	f.IntVar(&o.Settings.GroupMax, "group-max", 0, "the most messages of one group (default: the daemon's)")
	f.IntVar(&o.Settings.Lanes, "lanes", 0, "lanes of each class to a peer (default: the daemon's)")
	f.StringVar(&o.Settings.Balance, "balance", "", "how requests are spread over the lanes to a peer: round-robin or least-outstanding (default: the daemon's)")
	f.StringVar(&o.Settings.Idle, "idle", "", "what an idle agent does: busy, adaptive or event (default: the daemon's)")
	f.BoolVar(&o.Settings.TLS, "tls", false, "make certificates and connect the nodes with TLS")
	f.BoolVar(&o.Settings.TLSData, "tls-data", false, "encrypt data connections as well; implies --tls")
	waitFlag(c, &o.Wait, server.DefaultWait, "how the echo service waits for requests; with --embedded it is the core's agent, which waits as --idle says")
	f.BoolVar(&o.Embedded, "embedded", false, "have the core of node b be the echo service, instead of a process of its own")
	f.BoolVar(&o.Keep, "keep", false, "leave configurations and logs behind")
}

// settle checks the flags, and puts together what they say of the configuration.
func (s *sandboxFlags) settle(c *cobra.Command) error {
	o := &s.options.Settings
	if c.Flags().Changed("group-max") && o.GroupMax < 1 {
		return usagef("--group-max %d: want 1 to 255", o.GroupMax)
	}
	if c.Flags().Changed("lanes") && o.Lanes < 1 {
		return usagef("--lanes %d: want 1 to %d", o.Lanes, config.MaxLanesPerPeer)
	}
	if err := s.checkUse(c); err != nil {
		return err
	}
	if err := checkFabricOptions(o.Verbs); err != nil {
		return err
	}
	o.TLS = o.TLS || o.TLSData
	if o.Verbs == nil {
		o.Verbs = make(map[string]string)
	}
	for key, value := range map[string]string{"device": s.device, "connect": s.connect} {
		if value != "" {
			o.Verbs[key] = value
		}
	}
	return checkSettings(*o)
}

// checkUse refuses flags of a section that the fabric does not read: "auto" reads that of verbs, whatever it falls back to.
func (s *sandboxFlags) checkUse(c *cobra.Command) error {
	fabric := cmp.Or(s.options.Settings.Fabric, "tcp")
	for _, f := range []struct {
		flag  string
		users []string
	}{
		{"verbs-device", []string{"verbs", "auto"}},
		{"verbs-connect", []string{"verbs", "auto"}},
		{"fabric-option", []string{"verbs", "libfabric", "auto"}},
	} {
		if c.Flags().Changed(f.flag) && !slices.Contains(f.users, fabric) {
			return usagef("--%s: --fabric %s has no use for it; want --fabric %s", f.flag, fabric, strings.Join(f.users, " or "))
		}
	}
	return nil
}

// runSandbox runs a command in a sandbox. Its status, unless it is 0, is the error.
func runSandbox(ctx context.Context, o sandbox.Options, command []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	o.Program = program
	// Nothing is to be left behind of a terminal that is closed, either.
	if !signal.Ignored(syscall.SIGHUP) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	defer nodelog.OutliveReader()()
	s, err := sandbox.Start(ctx, o)
	if err != nil {
		return err
	}
	status, err := s.Command(ctx, command)
	if failed := s.Failed(); failed != nil {
		fmt.Fprintf(os.Stderr, "rdmad: sandbox: %v\n", failed)
	}
	err = errors.Join(err, s.Close())
	if o.Keep {
		fmt.Fprintf(os.Stderr, "rdmad: sandbox: configurations and logs are in %s\n", s.Dir)
	}
	if err == nil && status != 0 {
		err = statusError(status)
	}
	return err
}

// optionKey is what a key of the configuration looks like. The daemon checks
// whether there is such a key.
var optionKey = regexp.MustCompile(`^[a-z_]+$`)

// settingFlags are the flags for keys of the configuration.
var settingFlags = map[string]string{
	"fabric.provider": "--fabric", "verbs.device": "--verbs-device", "verbs.connect": "--verbs-connect", "agent.idle": "--idle",
	"group_send.max_messages": "--group-max", "group_send.max_group_delay": "--max-group-delay", "lanes.per_peer": "--lanes", "lanes.balance": "--balance",
}

// checkSettings has the configuration checked that the flags make, and names them.
func checkSettings(s sandbox.Settings) error {
	errs := s.Check()
	if len(errs) == 0 {
		return nil
	}
	flag := settingFlags[errs[0].Key]
	if flag == "" {
		_, key, _ := strings.Cut(errs[0].Key, ".")
		flag = "--fabric-option " + key
	}
	return usagef("%s: %s", flag, errs[0].Reason)
}

func checkFabricOptions(options map[string]string) error {
	for key := range options {
		if !optionKey.MatchString(key) {
			return usagef("--fabric-option %q: want key=value with a key of the fabric's section; see: rdmad config example", key)
		}
	}
	return nil
}
