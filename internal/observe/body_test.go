package observe

import (
	"io"
	"strings"
	"testing"
	"time"
)

// Connections whose request has its answer, but whose body does not come, do not keep a probe
// out, whatever they ask.
func TestMissingBodiesMakeRoom(t *testing.T) {
	for _, path := range []string{"/healthz", "/debug/pprof/symbol"} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			addr := listening(t, New(Options{Source: newFake(t)}))
			// The quickest probe counts: the machine may stand still during some.
			quickest := readTimeout
			for tries := 0; tries < 5 && quickest > readTimeout/2; tries++ {
				for range 4 * maxConns {
					c := dial(t, addr)
					if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				admitted(t, addr)
				quickest = min(quickest, time.Since(began))
			}
			if quickest > readTimeout/2 {
				t.Errorf("a probe waited for %v", quickest)
			}
		})
	}
}
