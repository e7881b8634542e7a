package handoff

import "os"

// The descriptors that the supervisor hands to each core.
const (
	// startFD is a pipe with the Start as JSON.
	startFD = 3 + iota
	// LifelineFD is a pipe whose other end only the supervisor holds: it ends
	// when the supervisor dies.
	LifelineFD
	// SocketFD is the listening Unix socket for workers.
	SocketFD
	// DepotFD is the core's end of the socket to the depot.
	DepotFD
	// othersFD is the first of those that there may be: see Descriptors.
	othersFD
)

// Files are what a supervisor hands to a core: nil for what the core does not get, of the last three only.
type Files struct {
	Start, Lifeline, Socket, Depot *os.File
	// Bootstrap is the listening TCP socket for peers, Observe has those for HTTP.
	Bootstrap *os.File
	Observe   [Observers]*os.File
	Pulse     *os.File
}

// List returns them as exec.Cmd wants its ExtraFiles. Releases agree about the order.
func (f *Files) List() []*os.File {
	list := []*os.File{f.Start, f.Lifeline, f.Socket, f.Depot}
	for _, other := range append(append([]*os.File{f.Bootstrap}, f.Observe[:]...), f.Pulse) {
		if other != nil {
			list = append(list, other)
		}
	}
	return list
}

// Descriptors are those of a core that not each has; 0 for what it does not have.
type Descriptors struct {
	Bootstrap int
	Observe   [Observers]int
	Pulse     int
}

// Descriptors returns where Files.List has put what the core has.
func (h *Start) Descriptors() (d Descriptors) {
	next := othersFD
	put := func(fd *int, there bool) {
		if there {
			*fd = next
			next++
		}
	}
	put(&d.Bootstrap, h.Bootstrap)
	for i, there := range h.Observe {
		put(&d.Observe[i], there)
	}
	put(&d.Pulse, h.BeatNS > 0)
	return d
}
