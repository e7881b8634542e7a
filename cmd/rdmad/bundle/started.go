package bundle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
)

// askLimit is how long a daemon may take to say what configuration it has, which one that hangs does not.
const askLimit = 2 * time.Second

// AskStarted returns what the daemon on socket was started with, if it says so, or else what its command line tells.
func AskStarted(ctx context.Context, socket string) look.Started {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if raw, err := look.Ask(ctx, socket, "rdmad-config"); err == nil {
		if s, err := look.StartedOf(raw); err == nil || s.Source != "" {
			return s
		}
	}
	file, _ := startedWith(socket)
	return look.Started{Source: file}
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
