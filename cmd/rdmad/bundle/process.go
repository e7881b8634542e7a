package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/supervisor"
)

// Processes are those of a daemon: the supervisor, whose process id is beside the socket, and
// its children, of which one is the core. They are found without asking the daemon, and no others are taken for them: they
// are told to people who send signals, and what they log goes into a bundle.
func Processes(socket string) (pids []int, err error) {
	file := config.PIDFile(socket)
	text, err := readShort(file)
	if errors.Is(err, os.ErrNotExist) { // the supervisor of an older rdmad has it in its lock
		file = config.LockFile(socket)
		text, err = readShort(file)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("no daemon has the socket: %w", err)
	case err != nil:
		return nil, fmt.Errorf("which process has the socket: %w", err)
	}
	owner, err := strconv.Atoi(strings.TrimSpace(text))
	if err == nil && owner <= 0 {
		err = errors.New("it has no process id") // but that of many processes, for who sends a signal to it
	}
	// A daemon whose lock somebody has removed still has its socket open, which only its user and root can see.
	if err == nil && !supervisor.Locked(config.LockFile(socket), owner) && !look.HasOpen(owner, socket) {
		err = fmt.Errorf("process %d is not seen to be the daemon: its file was left by one that was killed, or that runs in a container", owner)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	pids = []int{owner}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(owner) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids[1:])
	return pids, nil
}

// readShort returns what is in a short file, without waiting for anybody: it may be a pipe that nobody writes to.
func readShort(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, 64))
	return string(text), err
}

// processFiles are what /proc tells of a process, threadFiles of each of its threads: what
// the kernel has them do, also of a daemon that hangs or was stopped.
var (
	processFiles = []string{"cmdline", "limits", "status", "stat", "cgroup", "smaps_rollup", "mountinfo", "io"}
	threadFiles  = []string{"comm", "stat", "wchan", "syscall", "stack"}
)

// maxThreads bounds the threads that are described of a process.
const maxThreads = 512

// describe returns what /proc tells of the processes of the daemon on socket.
func describe(ctx context.Context, socket string) ([]byte, error) {
	pids, err := Processes(socket)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d", pid)
		if _, serr := os.Stat(dir); serr != nil {
			err = errors.Join(err, fmt.Errorf("process %d does not exist", pid))
			continue
		}
		for _, name := range processFiles {
			show(&b, filepath.Join(dir, name))
		}
		fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
		fmt.Fprintf(&b, "== %s/fd\n%d descriptors\n", dir, len(fds))
		threads, _ := filepath.Glob(filepath.Join(dir, "task/[0-9]*"))
		for i, t := range threads {
			if ctx.Err() != nil {
				return []byte(b.String()), context.Cause(ctx)
			}
			if i == maxThreads {
				err = errors.Join(err, fmt.Errorf("%d of the %d threads of process %d", i, len(threads), pid))
				break
			}
			for _, name := range threadFiles {
				show(&b, filepath.Join(t, name))
			}
		}
	}
	if b.Len() == 0 {
		return nil, err
	}
	return []byte(b.String()), err
}

// show writes a file of /proc or /sys under its name.
func show(b *strings.Builder, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintf(b, "== %s: %v\n", file, err)
		return
	}
	text := strings.TrimRight(strings.ReplaceAll(string(data), "\x00", " "), "\n ")
	fmt.Fprintf(b, "== %s\n%s\n", file, text)
}
