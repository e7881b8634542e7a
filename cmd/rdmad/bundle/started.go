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
	// Overrides are the keys that it has from its flags and its environment, whatever the file says; nil if it does not
	// tell them.
	Overrides []config.Override
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

// StartedOf is AskStarted for a daemon's status, as it came.
func StartedOf(raw json.RawMessage) (Started, error) {
	n, err := look.Parse(raw)
	if err != nil {
		return Started{}, err
	}
	if n.Config == nil {
		return Started{}, errors.New("the daemon does not tell its configuration; see: rdmad version")
	}
	s := Started{Source: n.Config.Source, Overrides: n.Config.Overrides}
	var exact status.Node // what is for people has no lines
	if err := json.Unmarshal(raw, &exact); err != nil {
		return s, fmt.Errorf("status: %w", err)
	}
	s.InForce, err = config.ParseOwn("the daemon's configuration", []byte(exact.Config.TOML))
	return s, err
}

// Over says what of the daemon's flags and environment counts over its file; empty: nothing.
func (s Started) Over() string {
	var list []string
	for _, o := range s.Overrides {
		list = append(list, o.From)
	}
	return strings.Join(list, ", ")
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

// Sources returns what the daemon would make a configuration of if it read a file now. Where it does not tell, that is with
// the environment of this process.
func (s Started) Sources(file string) config.Sources {
	if s.Overrides == nil {
		return config.Sources{File: file, Environ: os.Environ()}
	}
	from := config.Sources{File: file}
	for _, o := range s.Overrides {
		from.Set = append(from.Set, o.Setting())
	}
	return from
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
