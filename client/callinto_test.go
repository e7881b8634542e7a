package client_test

import (
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// The request and the room for the answer may be the same memory, for the race detector of a user's tests, too.
func TestIntoTheSameMemory(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 2, nil)
	m := method(t, attach(t, a), "b/t/echo")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			buf := make([]byte, 32)
			for k := range 200 {
				buf[0], buf[31] = byte(i), byte(k)
				got, err := m.CallInto(t.Context(), buf, buf)
				if err != nil || len(got) != 32 || got[0] != byte(i) || got[31] != byte(k) {
					t.Errorf("%v, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
