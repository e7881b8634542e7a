package fabrics

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/rdmad/rdmad/internal/event"
)

// deviceNodes is where the device nodes of RDMA are.
const deviceNodes = "/dev/infiniband"

// openNodes returns the device nodes in a directory that every local user can open: with
// them anybody can make queue pairs, and with the privilege to make raw ones forge
// packets of this node's connections.
func openNodes(dir string) (open []string) {
	for _, pattern := range []string{"uverbs*", "rdma_cm"} {
		// The patterns are good, so there is no error.
		nodes, _ := filepath.Glob(filepath.Join(dir, pattern))
		open = append(open, nodes...)
	}
	return slices.DeleteFunc(open, func(node string) bool {
		info, err := os.Stat(node)
		return err != nil || info.Mode().Perm()&0o002 == 0
	})
}

// warnOfOpenNodes says once, at start, that others than the daemon can use its device.
func (o *Opener) warnOfOpenNodes() {
	if open := openNodes(o.nodes); len(open) > 0 {
		event.DeviceOpenToAll.On(&o.log).Strs("nodes", open).Msg("every local user can open the RDMA device, and only the daemon needs to; " +
			"give the nodes mode 0660 and a group of the daemon's user by a udev rule; see rdmad doctor and docs/security.md")
	}
}
