package depot

import (
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// Passed are the descriptors that a service manager has passed to this process.
type Passed struct {
	// Sockets listen: those of a socket unit. They belong to the caller.
	Sockets []*os.File
	// kept are those that an earlier process has put into the store, by name.
	kept map[string]int
	// cores are the pidfds of cores that may run; in kept they are ambiguous.
	cores []int
}

// ambiguous stands for the descriptor of a name that several were passed under: nobody knows which of them is meant.
const ambiguous = -1

// TakePassed takes over the descriptors that were passed (LISTEN_FDS), and unsets the
// variables: they are not for children. Call it before descriptors are opened and before
// other goroutines use the environment.
func TakePassed() *Passed {
	p := &Passed{kept: make(map[string]int)}
	for _, f := range activation.Files(true) {
		name := f.Name()
		if !strings.Contains(name, "#") {
			if listens(int(f.Fd())) {
				p.Sockets = append(p.Sockets, f)
				continue
			}
			_ = f.Close()
			continue
		}
		// The descriptor is wanted, and not the file, which would close it in the end.
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		_ = f.Close()
		if err != nil {
			continue
		}
		p.keep(name, fd)
	}
	return p
}

// keep takes over a descriptor that was in the store.
func (p *Passed) keep(name string, fd int) {
	if strings.HasPrefix(name, coreName) {
		p.cores = append(p.cores, fd)
		p.kept[name] = ambiguous
		return
	}
	if old, twice := p.kept[name]; twice {
		closeList([]int{old, fd})
		fd = ambiguous
	}
	p.kept[name] = fd
}

// listens reports whether a descriptor is a socket that listens.
func listens(fd int) bool {
	on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && on == 1
}
