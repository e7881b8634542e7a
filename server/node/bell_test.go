package node_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	wire "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// A worker that has those who ring the bell of its domain wait does not stop the core, whose own service wakes the agent by
// another one.
func TestBellThatBlocks(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ctx, c := patientContext(t), attach(t, a)
	hostile, err := wire.Open(ctx, b.Socket, wire.Hello{Role: wire.RoleClient, Name: "hostile"}, wire.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := hostile.Close(); err != nil {
			t.Error(err)
		}
		hostile.Release()
	}()
	fd := hostile.Bell.FD()
	full := binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1)
	for err = unix.EAGAIN; errors.Is(err, unix.EAGAIN); {
		hostile.Bell.Silence()
		_, err = unix.Write(fd, full)
	}
	if err = errors.Join(err, unix.SetNonblock(fd, false)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if p, err := c.Call(ctx, "b/t/late", []byte("x")); err != nil || string(p) != "x" {
			t.Fatalf("%q, %v", p, err)
		}
	}
}
