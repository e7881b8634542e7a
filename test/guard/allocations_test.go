package guard

import (
	"encoding/binary"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// allocations counts what the processes allocate for requests that are made without any:
// CallInto, and GoInto with Release.
func allocations(t *testing.T) map[string]float64 {
	t.Setenv(daemontest.AllocatedEnv, t.TempDir())
	r := newRig(t)
	defer r.stop()
	each := map[string]float64{}
	conn, err := client.Attach(t.Context(), r.b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ofService := func() uint64 {
		answer, err := conn.Call(t.Context(), "b/t/allocated", nil)
		if err != nil || len(answer) != 8 {
			t.Fatal(answer, err)
		}
		return binary.LittleEndian.Uint64(answer)
	}
	ofCore := func(pid int) uint64 {
		n, err := daemontest.Allocated(pid)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	near, far := r.core(r.a), r.core(r.b)
	for _, c := range []struct {
		style            string
		rounds, messages int
	}{{"call", 160, 160}, {"futures", 40, 40 * batchSize}, {"posts", 40, 40 * batchSize}} {
		r.rounds(c.style, c.rounds)
		ofService()
		service, nearDaemon, farDaemon := ofService(), ofCore(near), ofCore(far)
		note := func(role string, n int) { each[role] = max(each[role], float64(n)/float64(c.messages)) }
		note(theCaller, r.rounds(c.style, c.rounds))
		note(theNear, int(ofCore(near)-nearDaemon))
		note(theFar, int(ofCore(far)-farDaemon))
		note(theService, int(ofService()-service))
		t.Logf("up to %s: %v", c.style, each)
	}
	return each
}
