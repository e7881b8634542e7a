package grpcx

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/grpclog"

	"github.com/rdmad/rdmad/internal/daemontest"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(fatalPanics{grpclog.NewLoggerV2(discard{}, discard{}, discard{})})
	daemontest.Helper("echo", runEcho)
	daemontest.Main(m)
}

// fatalPanics is a log whose fatal messages panic: the interop test functions of
// gRPC say so that they have failed, and a program would end.
type fatalPanics struct{ grpclog.LoggerV2 }

// interopFailure is what fatalPanics panics with.
type interopFailure string

func (fatalPanics) Fatal(args ...any)   { panic(interopFailure(fmt.Sprint(args...))) }
func (fatalPanics) Fatalln(args ...any) { panic(interopFailure(fmt.Sprintln(args...))) }
func (fatalPanics) Fatalf(format string, args ...any) {
	panic(interopFailure(fmt.Sprintf(format, args...)))
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// failsHere makes the failure of an interop test function one of this test.
func failsHere(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			failure, ok := p.(interopFailure)
			if !ok {
				panic(p)
			}
			t.Fatal(string(failure))
		}
	}()
	f()
}
