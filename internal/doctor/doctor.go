package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/status"
)

// Level is how bad a finding is.
type Level int

const (
	// OK is as it should be.
	OK Level = iota
	// Warn works, but not as well as it could or as it was asked to.
	Warn
	// Fail does not work.
	Fail
)

var levelText = [...]string{OK: "OK", Warn: "WARN", Fail: "FAIL"}

// String returns "OK", "WARN" or "FAIL".
func (l Level) String() string { return levelText[l] }

// MarshalText makes levels words in JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is the outcome of a check.
type Finding struct {
	Level Level `json:"level"`
	// Check is the name of the check. The same check may find several things.
	Check string `json:"check"`
	// Found is what there is, with the numbers that count.
	Found string `json:"found"`
	// Remedy is a command, a key of the configuration or a setting of the
	// system; empty if the level is OK.
	Remedy string `json:"remedy"`
}

// Env is everything that checks look at.
type Env struct {
	// Root is the root directory of the machine, for /proc, /sys and /dev.
	Root fs.FS
	// OpenNode opens a device node as libibverbs would, and closes it.
	OpenNode func(path string) error
	// Dial connects to host:port by TCP and closes the connection.
	Dial func(ctx context.Context, address string) error

	// Writable reports whether this user may make files in a directory.
	Writable func(dir string) bool

	// Config is the configuration, or the default one if ConfigErr says why
	// there is none. ConfigFile is where it is from, and ConfigNamed says that
	// the user asked for that file.
	Config      *config.Config
	ConfigErr   error
	ConfigFile  string
	ConfigNamed bool
	// InForce: Config is what the daemon has in force. ConfigErr is then what is wrong with
	// what it would read now, and NextConfig that; both are nil if that is not known.
	InForce    bool
	NextConfig *config.Config

	// Built reports whether this build has the verbs provider.
	Built bool
	// Devices are the RDMA devices; DevicesErr says why they are not known, or
	// why libibverbs does not see those that there are.
	Devices    []verbs.DeviceInfo
	DevicesErr error

	// Daemon is the status of the running daemon; nil if DaemonErr says why it
	// is not known. Socket is where it was asked, and SocketNamed says that
	// the user asked for that socket.
	Daemon    *status.Node
	DaemonErr error
	// Unanswered: it is there, and does not answer.
	Unanswered  bool
	Socket      string
	SocketNamed bool

	// Version is that of this program.
	Version string
	// Peer is the node that the user asks about; empty: any.
	Peer string
}

// checks are made in this order.
var checks = []func(context.Context, *Env) []Finding{
	checkConfig,
	checkDaemon,
	checkFabric,
	checkProvider,
	checkLibfabric,
	checkModules,
	checkNodes,
	checkPort,
	checkTimeout,
	checkMemlock,
	checkHugepages,
	checkCgroup,
	checkFiles,
	checkRegions,
	checkSocket,
	checkTLS,
	checkPeers,
}

// Run makes all checks and returns their findings, the worst last.
func Run(ctx context.Context, e *Env) []Finding {
	if e.ConfigErr != nil && e.Daemon != nil && !e.InForce {
		e.adopt()
	}
	found := []Finding{}
	for _, check := range checks {
		found = append(found, check(ctx, e)...)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Level, b.Level) })
	return found
}

// adopt makes the configuration, which is the default one, more like that of the
// daemon, as far as its status tells.
func (e *Env) adopt() {
	c := *e.Config
	c.Node.Name, c.Node.Socket = e.Daemon.Node, e.Socket
	if e.Daemon.FabricWanted != "" {
		c.Fabric.Provider = e.Daemon.FabricWanted
	}
	c.Peers = nil
	for _, p := range e.Daemon.Peers {
		c.Peers = append(c.Peers, config.Peer{Name: p.Name, Address: p.Address})
	}
	e.Config = &c
}

// Worst returns the worst level of the findings.
func Worst(found []Finding) Level {
	worst := OK
	for _, f := range found {
		worst = max(worst, f.Level)
	}
	return worst
}

// Text describes the findings for people: one paragraph each and a summary.
func Text(found []Finding) string {
	width := 0
	for _, f := range found {
		width = max(width, len(f.Check))
	}
	var b strings.Builder
	count := map[Level]int{}
	for _, f := range found {
		count[f.Level]++
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", f.Level, width, f.Check, f.Found)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%*s-> %s\n", 4+2+width+2, "", f.Remedy)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %s, %s\n", count[OK], plural(count[Warn], "warning"), plural(count[Fail], "failure"))
	return b.String()
}

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// one is the list of a single finding.
func one(level Level, check, remedy, format string, args ...any) []Finding {
	return []Finding{{Level: level, Check: check, Remedy: remedy, Found: fmt.Sprintf(format, args...)}}
}

// good is the list of a single finding that all is well.
func good(check, format string, args ...any) []Finding {
	return one(OK, check, "", format, args...)
}

// wantsRDMA reports whether the configuration asks for RDMA devices, so that
// checks of them mean something.
func (e *Env) wantsRDMA() bool {
	return e.Config.Fabric.Provider == verbs.Name || e.Config.Fabric.Provider == "auto"
}

// severity is how bad it is that the configured fabric does not work: a node without peers opens none.
func (e *Env) severity() Level {
	if e.Config.Fabric.Provider == "auto" || len(e.Config.Peers) == 0 {
		return Warn
	}
	return Fail
}
