//go:build libfabric && cgo && linux

package libfabric

import (
	"fmt"
	"sync"
)

// taken are the names of the peers of this process's endpoints. Each endpoint has a name of its own, so no two of ours have
// peers of the same name, unless one of them lies. Then closing the one that believes it would end the connections of
// the other; see lf_sever.c.
var taken = struct {
	mu    sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// takeName takes the name of e's peer until leaveName; e.mu is held. One that is just being closed has it for a
// moment only: who is refused asks again.
func (e *Endpoint) takeName(name string) error {
	if e.dev.info.Provider != rxmProvider {
		return nil
	}
	taken.mu.Lock()
	defer taken.mu.Unlock()
	if taken.names[name] && e.name != name {
		return fmt.Errorf("%w: another connection of this process leads there", errAddress)
	}
	taken.names[name] = true
	e.name = name
	return nil
}

func (e *Endpoint) leaveName() {
	taken.mu.Lock()
	defer taken.mu.Unlock()
	delete(taken.names, e.name)
	e.name = ""
}
