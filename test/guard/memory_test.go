package guard

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// extent is a piece of a process's memory.
type extent struct{ at, n uint64 }

// mapping is a mapping of a process. shared says that workers have it, too: it is a lane's
// or a region's.
type mapping struct {
	from, to uint64
	shared   bool
}

// extents returns the memory that a read or a write is about.
func (c *call) extents() []extent {
	if c.number != unix.SYS_READV && c.number != unix.SYS_WRITEV {
		return []extent{{c.args[1], c.args[2]}}
	}
	const size = 16 // of a struct iovec
	list := make([]byte, size*c.args[2])
	if len(list) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &list[0]}}
	local[0].SetLen(len(list))
	if _, err := unix.ProcessVMReadv(c.pid, local, []unix.RemoteIovec{{Base: uintptr(c.args[1]), Len: len(list)}}, 0); err != nil {
		return nil
	}
	var all []extent
	for ; len(list) > 0; list = list[size:] {
		all = append(all, extent{binary.NativeEndian.Uint64(list), binary.NativeEndian.Uint64(list[8:])})
	}
	return all
}

// moved counts the bytes of a read or write that has ended.
func (x *tracer) moved(c *call, add func(kind, int)) {
	in, out := [2]kind{gotCopies, gotInPlace}, [2]kind{sentCopies, sentInPlace}
	kinds := out
	if c.number == unix.SYS_READ || c.number == unix.SYS_READV {
		kinds = in
	}
	left := uint64(max(0, c.result))
	for _, e := range x.vectors[c.tid] {
		n := min(left, e.n)
		left -= n
		if n > 0 && x.shared(c.pid, e.at) {
			add(kinds[1], int(n))
		} else if n > 0 {
			add(kinds[0], int(n))
		}
	}
	delete(x.vectors, c.tid)
}

// shared reports whether workers have the memory at an address, too.
func (x *tracer) shared(pid int, at uint64) bool {
	for range 2 {
		for _, m := range x.maps[pid] {
			if at >= m.from && at < m.to {
				return m.shared
			}
		}
		x.maps[pid] = mappings(pid) // it is new
	}
	return false
}

func mappings(pid int) (all []mapping) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		var m mapping
		if _, err := fmt.Sscanf(line, "%x-%x", &m.from, &m.to); err != nil {
			continue
		}
		m.shared = strings.Contains(line, "memfd:rdmad-lane") || strings.Contains(line, "memfd:rdmad-region")
		all = append(all, m)
	}
	return all
}
