package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/status"
)

// askLimit is how long a daemon may take to say what configuration it has, which one that hangs does not.
const askLimit = 2 * time.Second

// Started is what a daemon was started with.
type Started struct {
	// Source is its configuration file; empty: that is not known.
	Source string
	// InForce is what it says is in force; nil if it does not.
	InForce *config.Config
}

// AskStarted returns what the daemon on socket was started with, if it says so, or else what its command line tells.
func AskStarted(ctx context.Context, socket string) Started {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if raw, err := look.Ask(ctx, socket, "rdmad-config"); err == nil {
		if s, err := StartedOf(raw); err == nil || s.Source != "" {
			return s
		}
	}
	file, _ := startedWith(socket)
	return Started{Source: file}
}

// StartedOf is AskStarted for a daemon's status, as it came: what is for people has no lines.
func StartedOf(raw json.RawMessage) (Started, error) {
	var n status.Node
	if err := json.Unmarshal(raw, &n); err != nil {
		return Started{}, fmt.Errorf("status: %w", err)
	}
	if n.Config == nil {
		return Started{}, errors.New("the daemon does not tell its configuration; see: rdmad version")
	}
	s := Started{Source: n.Config.Source}
	var err error
	s.InForce, err = config.ParseOwn("the daemon's configuration", []byte(n.Config.TOML))
	return s, err
}

// Again returns why the file cannot be read again: another process has another /dev/stdin, and a pipe says everything
// once. It is nil if the file does not exist, which reading it tells.
func (s Started) Again() error {
	names := []string{filepath.Clean(s.Source)}
	if real, err := filepath.EvalSymlinks(s.Source); err == nil {
		names = append(names, real)
	}
	info, err := os.Stat(s.Source)
	if slices.ContainsFunc(names, ofThisProcess) || err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("the daemon was started with -c %s, which cannot be read again", s.Source)
	}
	return nil
}

// ofThisProcess reports whether a name can mean something else to each process.
func ofThisProcess(name string) bool {
	return strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/")
}

// startedWith finds the file in the command line of the supervisor, which is that of "rdmad run": a service that runs a node
// itself may have other flags.
func startedWith(socket string) (file string, ok bool) {
	pids, err := Processes(socket)
	if err != nil {
		return "", false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids[0]))
	if err != nil {
		return "", false
	}
	args := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
	if len(args) < 2 || args[1] != "run" {
		return "", false
	}
	for i, a := range args {
		rest, joined := strings.CutPrefix(a, "--config=")
		if !joined && strings.HasPrefix(a, "-c") && len(a) > len("-c") {
			rest, joined = strings.TrimPrefix(a[len("-c"):], "="), true
		}
		switch {
		case joined:
			file = rest
		case (a == "-c" || a == "--config") && i+1 < len(args):
			file = args[i+1]
		}
	}
	if file != "" && !filepath.IsAbs(file) {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pids[0]))
		if err != nil {
			return "", false
		}
		file = filepath.Join(cwd, file)
	}
	return file, file != ""
}
