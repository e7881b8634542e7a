package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// systemFiles are facts of the machine, rdmaFiles those of its RDMA devices.
var (
	systemFiles = []string{"/etc/os-release", "/proc/version", "/proc/uptime", "/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/memory",
		"/proc/net/dev", "/proc/net/sockstat", "/proc/sys/kernel/pid_max", "/proc/sys/fs/file-nr", "/proc/sys/vm/max_map_count",
		"/proc/sys/kernel/hung_task_timeout_secs", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max"}
	rdmaFiles = []string{"/sys/class/infiniband/*/fw_ver", "/sys/class/infiniband/*/node_type", "/sys/class/infiniband/*/ports/*/state",
		"/sys/class/infiniband/*/ports/*/phys_state", "/sys/class/infiniband/*/ports/*/rate", "/sys/class/infiniband/*/ports/*/link_layer",
		"/sys/class/infiniband/*/ports/*/counters/*", "/sys/class/infiniband/*/ports/*/hw_counters/*", "/sys/class/infiniband/*/hw_counters/*"}
)

// system returns facts of the machine.
func system(context.Context) ([]byte, error) {
	var b strings.Builder
	for _, f := range systemFiles {
		show(&b, f)
	}
	b.WriteString("== processors\n")
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	n := 0
	for line := range strings.Lines(string(cpus)) {
		if strings.HasPrefix(line, "processor") {
			n++
		}
		if n == 1 && (strings.HasPrefix(line, "model name") || strings.HasPrefix(line, "cpu MHz")) {
			b.WriteString(line)
		}
	}
	fmt.Fprintf(&b, "%d of them\n== interfaces\n", n)
	interfaces, err := net.Interfaces()
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		fmt.Fprintf(&b, "%s: MTU %d, %v, %v\n", i.Name, i.MTU, i.Flags, addresses)
	}
	return []byte(b.String()), err
}

// rdma returns what the kernel tells of RDMA.
func rdma(ctx context.Context) ([]byte, error) {
	var b strings.Builder
	modules, err := os.ReadFile("/proc/modules")
	b.WriteString("== modules\n")
	for line := range strings.Lines(string(modules)) {
		for _, part := range []string{"ib_", "rdma", "mlx", "iw_", "siw", "rxe", "bnxt", "efa", "irdma", "cxgb4"} {
			if strings.Contains(line, part) {
				b.WriteString(line)
				break
			}
		}
	}
	nodes, _ := filepath.Glob("/dev/infiniband/*")
	for _, n := range nodes {
		if info, err := os.Stat(n); err == nil {
			fmt.Fprintf(&b, "== %s: %v\n", n, info.Mode())
		}
	}
	for _, pattern := range rdmaFiles {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			if ctx.Err() != nil {
				return []byte(b.String()), context.Cause(ctx)
			}
			show(&b, f)
		}
	}
	return []byte(b.String()), err
}

// logTail is how much of a log is kept.
const logTail = 1 << 20

// kernelLog returns the last lines of the kernel's log, if this user may read it.
func kernelLog(context.Context) ([]byte, error) {
	const readAll = 3 // SYSLOG_ACTION_READ_ALL
	buf := make([]byte, logTail)
	n, err := unix.Klogctl(readAll, buf)
	if err != nil {
		return nil, fmt.Errorf("the kernel's log: %w", err)
	}
	return buf[:n], nil
}

// daemonLog returns the last that the daemon has logged: from the file that its standard
// error is, or else from the journal.
func daemonLog(ctx context.Context, socket, unit string) ([]byte, error) {
	pids, err := Processes(socket)
	if err == nil {
		var data []byte
		if data, err = tail(fmt.Sprintf("/proc/%d/fd/2", pids[0])); err == nil {
			return data, nil
		}
		err = fmt.Errorf("standard error of process %d: %w", pids[0], err)
	}
	data, jerr := journal(ctx, unit)
	if jerr == nil {
		return data, nil
	}
	return nil, errors.Join(err, jerr)
}

// tail returns the end of a regular file.
func tail(path string) ([]byte, error) {
	// Not opened before it is known: it may be a terminal or a pipe.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(max(0, info.Size()-logTail), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, logTail))
}

// journal returns the last of a unit's journal.
func journal(ctx context.Context, unit string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "journalctl", "--unit", unit, "--lines", "5000", "--no-pager", "--quiet", "--output", "short-iso-precise")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	switch {
	case err != nil:
		return nil, fmt.Errorf("journal of %s: %w %s", unit, err, errOut.String())
	case len(out) == 0:
		return nil, fmt.Errorf("journal of %s: there is nothing in it", unit)
	}
	return out, nil
}
