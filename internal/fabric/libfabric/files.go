//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Endpoints of the provider shm are files in memory, which the library removes when it closes
// them. The first message between two opens a connection, by mapping the sender's file, and
// libfabric 1.17 crashes if there is none any more and it has not been mapped before. So
//   - an endpoint makes its peer's known to the library, which maps it, and sees that it was still
//     there, before it looks at what has come. If it went at that very moment the endpoint is never
//     closed, because the library would crash of that, too;
//   - a device sends to another only what has to do with endpoints of which the other has greeted,
//     because it has made this one known before;
//   - a device forgets another only when that one's file is gone, and all that it had sent has
//     been taken.
//
// The file of a process that was killed stays until the next device is opened, and so does what is
// known of it.

const (
	filesDir   = "/dev/shm/"
	filePrefix = "fi_shm://"
)

// present reports whether the endpoint with that name has not been closed.
func present(name string) bool {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, filePrefix), "\x00")
	_, err := os.Stat(filesDir + name)
	return err == nil
}

// departed returns the control endpoints that were closed and that nobody uses any more.
func (d *Device) departed() (gone []*controlPeer) {
	if d.info.Provider != shmProvider {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.peers {
		if p.refs == 0 && !present(p.name) {
			gone = append(gone, p)
		}
	}
	return gone
}

// forget drops control endpoints whose last messages have been taken.
func (d *Device) forget(gone []*controlPeer) {
	if len(gone) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range gone {
		if p.refs == 0 {
			delete(d.peers, p.name)
			d.ctl.forget(p.addr)
		}
	}
}

// sweep removes the files of this user's processes that were killed.
func sweep() {
	files, err := os.ReadDir(filesDir)
	var here unix.Stat_t
	if err != nil || unix.Stat("/proc/self/ns/pid", &here) != nil {
		return
	}
	for _, f := range files {
		var namespace uint64
		var pid int
		// Who has no number here, or another namespace of them, may live.
		if n, _ := fmt.Sscanf(f.Name(), "rdmad-%d-%d-", &namespace, &pid); n != 2 || namespace != here.Ino || pid < 1 {
			continue
		}
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(filesDir + f.Name()) // another's is refused, and left to them
		}
	}
}
