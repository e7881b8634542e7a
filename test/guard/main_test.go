package guard

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/daemontest"
)

func TestMain(m *testing.M) {
	daemontest.Helper("service", runService)
	daemontest.Helper("caller", runCaller)
	daemontest.Helper("tracer", runTracer)
	// A tracer is no parent of those that it traces: they allow it, where they have to
	// (Yama). Elsewhere the kernel knows no such thing.
	_ = unix.Prctl(unix.PR_SET_PTRACER, anyTracer, 0, 0, 0)
	daemontest.Main(m)
}

// anyTracer is PR_SET_PTRACER_ANY.
const anyTracer = ^uintptr(0)
