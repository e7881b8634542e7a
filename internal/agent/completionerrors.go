package agent

import (
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/fabric"
)

// completionErrors returns the counter of completions with a status that is not success.
func completionErrors(c *counters.AgentCounts, s fabric.Status) *uint64 {
	switch s {
	case fabric.StatusLocalLength:
		return &c.ErrorLocalLength
	case fabric.StatusLocalProtection:
		return &c.ErrorLocalProtection
	case fabric.StatusRemoteInvalid:
		return &c.ErrorRemoteInvalid
	case fabric.StatusRemoteAccess:
		return &c.ErrorRemoteAccess
	case fabric.StatusRemoteOperation:
		return &c.ErrorRemoteOperation
	case fabric.StatusRetryExceeded:
		return &c.ErrorRetryExceeded
	case fabric.StatusRNRExceeded:
		return &c.ErrorRNRExceeded
	case fabric.StatusFlushed:
		return &c.ErrorFlushed
	}
	return &c.ErrorFatal
}
