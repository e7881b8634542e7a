package agent

import "github.com/rdmad/rdmad/internal/status"

// ServicesCounted enters the methods that are served here into m, by id, on the agent's
// thread.
func (d *Domain) ServicesCounted(m map[uint32]*status.ServiceCounted) {
	for _, method := range d.methods {
		if method == nil {
			continue
		}
		r := method.row
		m[method.id] = status.CountedOfService(r)
	}
}
