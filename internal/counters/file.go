package counters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Identity is whose counters they are.
type Identity struct {
	// Node is the name of the node, Program its version, Incarnation that of the daemon,
	// and Digest that of its configuration. At most 63 bytes of each are kept.
	Node, Program, Incarnation, Digest string
	// Supervisor is the process id of the supervisor.
	Supervisor int
	// Started is when the core was.
	Started time.Time
}

// Rows is how many rows of each kind there are.
type Rows struct {
	// Agents have a row each, 1 to 64. Lanes and Services are how many there is room for,
	// at most 4096; what comes after that is counted as "other".
	Agents, Lanes, Services int
}

// LaneID tells lanes apart.
type LaneID struct {
	// Domain, Peer and Class are names, Number tells the lanes of a class to a peer apart.
	Domain, Peer, Class string
	Number              int
	// Direction is that of the requests.
	Direction Direction
}

// Direction is the way that a lane's requests go.
type Direction uint64

// The directions: from this node, to this node, and within it.
const (
	Out Direction = iota
	In
	Local
)

// String returns the direction as the status has it.
func (d Direction) String() string {
	if d > Local {
		return "other"
	}
	return [...]string{"out", "in", "local"}[d]
}

// ServiceID tells methods apart.
type ServiceID struct{ Domain, Service, Method string }

// File is what one core counts: a file that it has mapped, or memory of its own.
// Rows are given out by any goroutine, and then written by the agent's thread alone.
type File struct {
	mem   []byte
	shape shape
	path  string // "" without a file
	unmap func() error

	// closing is held while somebody takes a snapshot, by others than the core's agents.
	closing sync.RWMutex
	closed  bool

	mu       sync.Mutex
	lanes    map[LaneID]*Lane
	services map[ServiceID]*Service
}

// ErrForeign is returned for a path with something that is no file of counters.
var ErrForeign = errors.New("counters: not a file of counters, and so neither replaced nor removed: move it away, or choose another path")

// ErrInUse is returned for a path with the counters of another daemon, which runs.
var ErrInUse = errors.New("counters: another daemon's")

// own returns nil if what is at path is a file of counters of this supervisor's cores or of a daemon that is gone, or
// nothing.
func own(path string, supervisor int) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s", ErrForeign, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	defer f.Close()
	var begin [16]byte // the version and the magic
	if _, err := f.ReadAt(begin[:], 0); err != nil || binary.NativeEndian.Uint64(begin[8:]) != magic {
		return fmt.Errorf("%w: %s", ErrForeign, path)
	}
	s, err := (&Reader{f}).Snapshot()
	if err != nil {
		return nil // of another release, or half made
	}
	// A core whose supervisor is gone goes on for a moment only.
	orphan := errors.Is(unix.Kill(s.Supervisor, 0), unix.ESRCH)
	if p := s.Process(); s.State != Stopped && s.Supervisor != supervisor && !orphan && (p == ProcessAlive || p == ProcessHalted) {
		return fmt.Errorf("%w: %s has those of node %s (process %d): give each its own observe.counters", ErrInUse, path, s.Node, s.Core)
	}
	return nil
}

// ErrRows is returned for Rows out of their range.
var ErrRows = errors.New("counters: number of rows out of range")

// shapeOf checks what the caller wants.
func shapeOf(r Rows) (shape, error) {
	if r.Agents < 1 || r.Agents > maxAgents || r.Lanes < 0 || r.Lanes > maxLanes || r.Services < 0 || r.Services > maxServices {
		return shape{}, fmt.Errorf("%w: %+v", ErrRows, r)
	}
	return shape{r.Agents, r.Lanes, r.Services}, nil
}

// New returns a File in memory that nobody else sees. The caller must Close it.
func New(id Identity, r Rows) (*File, error) {
	s, err := shapeOf(r)
	if err != nil {
		return nil, err
	}
	mem, err := mmap.MapRegion(nil, s.size(), mmap.RDWR, mmap.ANON, 0)
	if err != nil {
		return nil, fmt.Errorf("counters: map %d bytes: %w", s.size(), err)
	}
	f := newFile(mem, s, id)
	f.unmap = mem.Unmap
	return f, nil
}

// Create makes the file at path, with the given permissions, and maps it. What was there
// before is replaced in one step, and stays readable for those who have it open. The
// caller must Close it. Errors are ErrForeign, ErrInUse and those of the file system, such as ENOSPC:
// nothing is left behind then.
func Create(path string, mode os.FileMode, id Identity, r Rows) (_ *File, err error) {
	s, err := shapeOf(r)
	if err != nil {
		return nil, err
	}
	if err := own(path, id.Supervisor); err != nil {
		return nil, err
	}
	// Hidden, and with a fixed name: what a core leaves that dies here the next one takes.
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("counters: %w", err)
	}
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	defer f.Close() // the mapping stays
	defer func() {
		if err != nil {
			_ = os.Remove(next)
		}
	}()
	if err := allocate(f, s.size()); err != nil {
		return nil, fmt.Errorf("counters: %d bytes for %s: %w", s.size(), path, err)
	}
	mem, err := mmap.MapRegion(f, s.size(), mmap.RDWR, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("counters: map %s: %w", path, err)
	}
	c := newFile(mem, s, id)
	c.path, c.unmap = path, mem.Unmap
	if err = f.Chmod(mode); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("counters: %w", err), mem.Unmap())
	}
	return c, nil
}

// allocate makes all blocks of a file exist, so that no store finds the disk full.
func allocate(f *os.File, size int) error {
	for {
		// The runtime's signals interrupt it.
		if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != unix.EINTR {
			return err
		}
	}
}

// newFile writes the head of fresh memory.
func newFile(mem []byte, s shape, id Identity) *File {
	h := headOf(mem)
	h.magic, h.schema, h.size = magic, schema, uint64(s.size())
	h.agents, h.lanes, h.services = uint64(s.agents), uint64(s.lanes), uint64(s.services)
	h.started, h.supervisor = uint64(id.Started.UnixNano()), uint64(id.Supervisor)
	h.core, h.born, h.pids = uint64(os.Getpid()), birth("self"), namespace()
	h.node.set(id.Node)
	h.program.set(id.Program)
	h.incarnation.set(id.Incarnation)
	h.digest.set(id.Digest)
	h.state.Store(uint64(Running))
	for i := range s.agents {
		l, v := s.lane(mem, i), s.service(mem, i)
		l.agent, v.agent = uint64(i), uint64(i)
		l.used.Store(1)
		v.used.Store(1)
	}
	// SYNC POINT (counters ready): stored last; pairs with decode.
	h.version.Store(Version)
	return &File{mem: mem, shape: s, lanes: make(map[LaneID]*Lane), services: make(map[ServiceID]*Service)}
}

// Path is where the file is, "" for memory that nobody else sees.
func (f *File) Path() string { return f.path }

// Node returns the counters of the node as a whole: add to them with functions of
// sync/atomic.
func (f *File) Node() *NodeCounts { return &nodeOf(f.mem).NodeCounts }

// Agent returns what agent i writes, which is its thread's alone.
func (f *File) Agent(i int) *Agent {
	row := f.shape.agent(f.mem, i)
	return &Agent{
		Counts: &row.counts, Cycles: &row.cycles, state: &row.state, beat: &row.beat,
		OtherLane: &f.shape.lane(f.mem, i).lane, OtherService: &f.shape.service(f.mem, i).counts,
	}
}

// Lane returns what is counted of a lane, for agent i, which moves it and must be the same
// in each call for the lane. Without a free row it is the agent's "other".
func (f *File) Lane(id LaneID, i, slots, slotSize int) *Lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lanes[id]; l != nil {
		return l
	}
	n := len(f.lanes)
	if n == f.shape.lanes {
		return &f.shape.lane(f.mem, i).lane
	}
	row := f.shape.lane(f.mem, f.shape.agents+n)
	row.number, row.slots, row.slotSize, row.agent, row.direction = uint64(id.Number), uint64(slots), uint64(slotSize), uint64(i), uint64(id.Direction)
	row.domain.set(id.Domain)
	row.peer.set(id.Peer)
	row.class.set(id.Class)
	f.lanes[id] = &row.lane
	row.used.Store(1)
	return &row.lane
}

// Service is Lane for a method.
func (f *File) Service(id ServiceID, i int) *Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.services[id]; s != nil {
		return s
	}
	n := len(f.services)
	if n == f.shape.services {
		return &f.shape.service(f.mem, i).counts
	}
	row := f.shape.service(f.mem, f.shape.agents+n)
	row.agent = uint64(i)
	row.domain.set(id.Domain)
	row.service.set(id.Service)
	row.method.set(id.Method)
	f.services[id] = &row.counts
	row.used.Store(1)
	return &row.counts
}

// SetState says what the core is doing.
func (f *File) SetState(s State) { headOf(f.mem).state.Store(uint64(s)) }

// SetDigest says that the configuration is another one. One goroutine does so at a time.
func (f *File) SetDigest(digest string) { headOf(f.mem).digest.set(digest) }

// Snapshot returns what is in the file now; after Close ErrNotRunning.
func (f *File) Snapshot() (*Snapshot, error) {
	f.closing.RLock()
	defer f.closing.RUnlock()
	if f.closed {
		return nil, ErrNotRunning
	}
	from := shm.Uint64s(f.mem, 0, f.shape.size()/8)
	mem := shm.AlignedBytes(f.shape.size())
	to := shm.Uint64s(mem, 0, len(from))
	for i := range from {
		if v := from[i].Load(); v != 0 {
			shm.StoreRelease(&to[i], v)
		}
	}
	return decode(mem)
}

// Close says that the core has stopped, and unmaps the file, which stays. No row may be
// used after it.
func (f *File) Close() error {
	f.closing.Lock()
	defer f.closing.Unlock()
	f.closed = true
	f.SetState(Stopped)
	return f.unmap()
}

// Remove removes a file that Create has made for a core of a supervisor, or for one that is gone, and what it may have
// left half made. ErrForeign if another file is there, ErrInUse if another daemon's is.
func Remove(path string, supervisor int) error {
	if err := own(path, supervisor); err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	var errs []error
	for _, p := range []string{path, next} {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
