package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/server"
)

func newSandbox() *cobra.Command {
	var o sandbox.Options
	var device, connect string
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
			if c.Flags().Changed("group-max") && o.Settings.GroupMax < 1 {
				return usagef("--group-max %d: want 1 to 255", o.Settings.GroupMax)
			}
			if c.Flags().Changed("lanes") && o.Settings.Lanes < 1 {
				return usagef("--lanes %d: want 1 to %d", o.Settings.Lanes, config.MaxLanesPerPeer)
			}
			o.Settings.TLS = o.Settings.TLS || o.Settings.TLSData
			if err := checkFabricOptions(o.Settings.Verbs); err != nil {
				return err
			}
			if o.Settings.Verbs == nil {
				o.Settings.Verbs = make(map[string]string)
			}
			for key, value := range map[string]string{"device": device, "connect": connect} {
				if value != "" {
					o.Settings.Verbs[key] = value
				}
			}
			if err := checkSettings(o.Settings); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("sandbox: %w", err)
			}
			o.Program = program
			// Nothing is to be left behind of a terminal that is closed, either.
			ctx := c.Context()
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
			status, err := s.Command(ctx, args)
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
		},
	}
	f := c.Flags()
	f.StringVar(&o.Settings.Fabric, "fabric", "tcp", "what moves the data: tcp, verbs, libfabric or auto")
	f.StringVar(&device, "verbs-device", "", "the RDMA device (default: the first with an active port)")
	f.StringVar(&connect, "verbs-connect", "", "how queue pairs are connected: oob or rdmacm (default: the daemon's)")
	f.StringToStringVar(&o.Settings.Verbs, "fabric-option", nil, "another `key=value` of [verbs], such as gid_index=3, or of [libfabric], such as provider=shm; may be repeated")
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
	return c
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
