package daemon

import (
	"fmt"
	"sync"

	"github.com/rdmad/rdmad/internal/attach"
)

// mostAsks is how many questions of the processes of all domains may wait for their answers, beside one of each attachment. Each
// takes up to 8 KiB of the core, most of it a goroutine's stack: all of them half of what regions leave of the memory there is
// (config.LeftByRegions), so that no processes can have the kernel kill the core by asking.
const mostAsks = 4096

// askRoom counts the questions of each domain that wait beside one of each attachment. A domain has its share of mostAsks, which no
// other can take.
type askRoom struct {
	mu      sync.Mutex
	waiting map[string]int // by the domain's name, which may have had other memory before
}

// take counts one more for a process of the named one of so many domains, or returns why it is to ask again later.
func (r *askRoom) take(name string, domains int) error {
	share := mostAsks / max(1, domains)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[name] >= share {
		return fmt.Errorf("%w: %d questions of processes of domain %s wait for their answers, of %d that each of %d domains may have beside one of each process",
			attach.ErrLater, r.waiting[name], name, share, domains)
	}
	if r.waiting == nil {
		r.waiting = make(map[string]int)
	}
	r.waiting[name]++
	return nil
}

// leave gives back what one take has counted.
func (r *askRoom) leave(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[name]--; r.waiting[name] == 0 {
		delete(r.waiting, name)
	}
}
