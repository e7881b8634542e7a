package daemon

import (
	"fmt"
	"slices"

	"github.com/rdmad/rdmad/internal/attach"
)

// place finds the domain of a new process.
func (c *conductor) place(w *worker) error {
	w.domain = c.admit(w.uid, w.gid, w.groups)
	if w.domain == nil && w.role == attach.RoleTool && mayOperate(w.uid) {
		w.domain = c.allDomains()[0] // tools get nothing of it
	}
	if w.domain == nil {
		return fmt.Errorf("%w: no domain of node %s admits user %d or one of its groups %v (see [[domain]] in its config)", attach.ErrPermission, c.node, w.uid, w.someGroups())
	}
	return nil
}

// admit returns the domain for a process with the given credentials: the first
// that lists its user, else the first that lists its primary group, else the first that
// lists one of its other groups.
func (c *conductor) admit(uid, gid uint32, others []uint32) *domain {
	for _, d := range c.allDomains() {
		if slices.Contains(d.policy.Load().UIDs, uid) {
			return d
		}
	}
	for _, d := range c.allDomains() {
		if slices.Contains(d.policy.Load().GIDs, gid) {
			return d
		}
	}
	for _, d := range c.allDomains() {
		if slices.ContainsFunc(d.policy.Load().GIDs, func(gid uint32) bool { return slices.Contains(others, gid) }) {
			return d
		}
	}
	return nil
}
