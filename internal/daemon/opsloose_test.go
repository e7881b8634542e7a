package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// Operations were under way on a connection that is lost, and there is to be no other one: the session
// ends, because the peer closes its end of the connection before it makes another. In that the
// operations go on.
func TestSessionEndsWithLooseOps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken")
	t.Setenv(daemon.BrittleEnv, file)
	a, b := daemontest.Pair(t, "link_hold = \"4s\"\n[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"verbs\"\n")
	began, stop := make(chan struct{}, 1), make(chan struct{})
	attachServer(t, b, map[string]server.Handler{
		"write": func(c *server.Call) error {
			bytes := make([]byte, c.Region(0).Len())
			for {
				if _, err := c.Region(0).WriteAt(bytes, 0); err != nil {
					return err
				}
				select {
				case began <- struct{}{}:
				case <-stop:
					return c.Reply(nil)
				default:
				}
			}
		},
	})
	conn := attachClient(t, a)
	region, err := conn.AllocRegion(t.Context(), 32<<20)
	check(t, err)
	ref, err := region.Ref(0, region.Len(), client.MayWrite)
	check(t, err)
	over := make(chan error, 1)
	go func() {
		_, err := conn.CallRegions(t.Context(), "b/text/write", nil, ref)
		over <- err
	}()
	<-began
	connected := func() float64 {
		s, err := b.Status(t.Context())
		check(t, err)
		return s.Peers[0].SinceS
	}
	since := connected()
	broken := []string{file + daemon.NoEndpoints, file + daemon.NoOperations}
	for _, name := range broken {
		check(t, os.WriteFile(name, nil, 0o600))
	}
	daemontest.Eventually(t, "the session ends", func() error {
		if s := connected(); s >= since {
			return fmt.Errorf("it is there for %v s", s)
		}
		return nil
	})
	for _, name := range broken {
		check(t, os.Remove(name))
	}
	close(stop)
	check(t, <-over)
}
