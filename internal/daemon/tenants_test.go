package daemon

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

// A service in the core that ends its goroutine instead of returning has left as one that returns.
func TestTenantEndsItsGoroutine(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := r.settle(ctx, []Tenant{func(context.Context, string, func()) error {
		runtime.Goexit()
		return nil
	}})
	if !errors.Is(err, errTenantLeft) {
		t.Error(err)
	}
}
