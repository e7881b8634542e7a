package agent

import "github.com/rdmad/rdmad/internal/status"

// ServicesCounted enters the methods that are served here, and have a row of their own, into m, by id, on the agent's
// thread.
func (d *Domain) ServicesCounted(m map[uint32]*status.ServiceCounted) {
	for _, method := range d.methods {
		if method == nil || method.row == d.agent.tally.OtherService {
			continue
		}
		m[method.id] = status.CountedOfService(method.row)
	}
}
