package client_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// Large messages have ample room once nobody but they has used the lanes for a while, and others are
// noticed whichever process they are in.
func TestPace(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 4, largeHandlers)
	c, other := attach(t, a), attach(t, a)
	sum := method(t, c, "b/t/sum").With(client.Rendezvous(0))
	fetch := method(t, c, "b/t/make").With(client.Rendezvous(0))
	large := pattern(3<<20, 1)
	size := binary.LittleEndian.AppendUint64(nil, 3<<20)
	alone := func() (alone bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !alone && time.Now().Before(end); {
			if _, err := sum.Call(t.Context(), large); err != nil {
				t.Fatal(err)
			}
			if got, err := fetch.Call(t.Context(), size); err != nil || len(got) != 3<<20 {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			alone, _ = client.Pace(c)
		}
		return alone
	}
	if !alone() {
		t.Fatal("large messages alone, in both directions, are never given more room")
	}
	for name, conn := range map[string]*client.Conn{"another process": other, "the same process": c} {
		small := method(t, conn, "b/t/sum")
		_, before := client.Pace(c)
		for range 8 {
			if _, err := small.Call(t.Context(), []byte("small")); err != nil {
				t.Fatal(err)
			}
		}
		if _, seen := client.Pace(c); seen == before {
			t.Errorf("small calls of %s have not been noticed", name)
		}
		if !alone() {
			t.Errorf("after the calls of %s", name)
		}
	}
	quiet(t, a, b)
}
