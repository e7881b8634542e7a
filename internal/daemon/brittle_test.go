package daemon

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/fabrics"
)

// BrittleEnv names a file: in a core that has the variable the provider verbs is one over
// tcp that fails while the file exists, penalties are short, and few graves are kept. While the file exists with
// NoEndpoints at its end, no endpoint is made, and it gets a byte for each that was to be; with
// NoOperations, writes to regions fail of which the first one is on its way. The core whose process id is
// in the file with NoAtomics at its end has no atomic operations, and the one whose process id is in the file with NoMemory
// cannot register any memory. While there is one with LateAccess, peers can come to regions that are closed.
const (
	BrittleEnv   = "RDMAD_TEST_BRITTLE"
	NoEndpoints  = ".endpoints"
	NoOperations = ".operations"
	NoAtomics    = ".atomics"
	NoMemory     = ".memory"
	LateAccess   = ".late"
)

func init() {
	file := os.Getenv(BrittleEnv)
	if file == "" {
		return
	}
	firstPenalty = 200 * time.Millisecond
	maxGraves = 256
	fabrics.Libibverbs = fabrics.VerbsPackage{
		Built: true,
		Devices: func() ([]verbs.DeviceInfo, error) {
			return []verbs.DeviceInfo{{Name: "brittle0", Ports: []verbs.PortInfo{{Number: 1, State: "ACTIVE", GIDs: make([]verbs.GID, 1)}}}}, nil
		},
		Open: func(verbs.Config) (fabric.Provider, error) { return brittle{tcp.New(tcp.Config{}), file}, nil },
	}
}

var errBrittle = errors.New("the device is broken for a test")

type brittle struct {
	fabric.Provider
	file string
}

func (brittle) Name() string { return verbs.Name }

func (b brittle) Open(o fabric.Options) (fabric.Device, error) {
	d, err := b.Provider.Open(o)
	return brittleDevice{d, b.file}, err
}

type brittleDevice struct {
	fabric.Device
	file string
}

func (d brittleDevice) Caps() fabric.Caps {
	caps := d.Device.Caps()
	if namesThisCore(d.file + NoAtomics) {
		caps.Atomics = false
	}
	_, err := os.Stat(d.file + LateAccess)
	caps.LateAccess = err == nil
	return caps
}

// namesThisCore reports whether the process id of this core is in the file.
func namesThisCore(file string) bool {
	pid, err := os.ReadFile(file)
	return err == nil && string(pid) == strconv.Itoa(os.Getpid())
}

func (d brittleDevice) AllocPD() (fabric.ProtectionDomain, error) {
	pd, err := d.Device.AllocPD()
	return brittlePD{pd, d.file}, err
}

type brittlePD struct {
	fabric.ProtectionDomain
	file string
}

func (p brittlePD) Register(mem []byte, access fabric.Access) (fabric.MemoryRegion, error) {
	if namesThisCore(p.file + NoMemory) {
		return nil, fmt.Errorf("%w: register memory: %w", errBrittle, syscall.ENOMEM) // as past RLIMIT_MEMLOCK
	}
	return p.ProtectionDomain.Register(mem, access)
}

func (p brittlePD) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	if f, err := os.OpenFile(p.file+NoEndpoints, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		_, err := f.Write([]byte{0})
		return nil, errors.Join(errBrittle, err, f.Close())
	}
	e, err := p.ProtectionDomain.CreateEndpoint(a)
	return brittleEndpoint{e, p.file}, err
}

type brittleEndpoint struct {
	fabric.Endpoint
	file string
}

func (e brittleEndpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	if _, err := os.Stat(e.file); err == nil {
		return 0, errBrittle
	}
	if len(wrs) > 1 && wrs[0].Op == fabric.OpWrite {
		if _, err := os.Stat(e.file + NoOperations); err == nil {
			n, err := e.Endpoint.PostSend(wrs[:1])
			return n, errors.Join(errBrittle, err)
		}
	}
	return e.Endpoint.PostSend(wrs)
}
