package guard

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/tenant"
	"github.com/rdmad/rdmad/server"
)

func TestMain(m *testing.M) {
	daemontest.Helper("service", runService)
	daemontest.Tenant(withinCores, tenant.Of(func(_ context.Context, s *server.Server) error { return register(s, server.Inline()) }))
	daemontest.Helper("caller", runCaller)
	daemontest.Helper("tracer", runTracer)
	// A tracer is no parent of those that it traces: they allow it, where they have to
	// (Yama). Elsewhere the kernel knows no such thing.
	_ = unix.Prctl(unix.PR_SET_PTRACER, anyTracer, 0, 0, 0)
	daemontest.Main(m)
}

// withinCores is the variable of the environment with which cores have the service within themselves.
const withinCores = "RDMAD_TEST_WITHIN_CORES"

// anyTracer is PR_SET_PTRACER_ANY.
const anyTracer = ^uintptr(0)
