package daemon

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
)

// withdraw answers a service worker's question to get no new requests. What it has not begun with goes to other
// processes that serve the same, or has its outcome.
func (c *conductor) withdraw(w *worker) (*attach.Message, error) {
	if w.role != attach.RoleService {
		return nil, fmt.Errorf("%w: only services withdraw", attach.ErrInvalid)
	}
	c.mu.Lock()
	again := w.withdrawn
	w.withdrawn = true
	served := false
	for _, m := range w.domain.methods {
		served = served || m.workers[w]
		delete(m.workers, w)
	}
	if _, attached := c.attached[w]; attached && !again {
		w.keepWorkerChange()
	}
	c.mu.Unlock()
	if served {
		c.directoryChanged()
	}
	d := w.domain
	d.agent.Commands.Call(func() { d.view.Withdraw(w.view) })
	return &attach.Message{Type: attach.TypeWithdrawn}, nil
}
