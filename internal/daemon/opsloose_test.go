package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	// The session ends when this is over, and the next one has to begin within as long, however slow the machine is.
	a, b := daemontest.Pair(t, "link_hold = \"15s\"\n[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"verbs\"\n")
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
	found(t, conn, "b/text/write")
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
	broke := time.Now()
	broken := []string{file + daemon.NoEndpoints, file + daemon.NoOperations}
	for _, name := range broken {
		check(t, os.WriteFile(name, nil, 0o600))
	}
	daemontest.Eventually(t, "the session ends", func() error {
		asked := time.Since(broke).Seconds()
		s, err := b.Status(t.Context())
		if err == nil && s.Peers[0].SinceS > asked {
			err = fmt.Errorf("it is there for %v s", s.Peers[0].SinceS)
		}
		return err
	})
	for _, name := range broken {
		check(t, os.Remove(name))
	}
	close(stop)
	check(t, <-over)
}

// Over a device that lets peers go on with what they have begun, the places of regions are kept, but not more and more
// of them: a peer that does not make its connection anew before is cut off, and its reads and writes are done again.
func TestRegionsComeAndGoOverLateDevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken")
	t.Setenv(daemon.BrittleEnv, file)
	check(t, os.WriteFile(file+daemon.LateAccess, nil, 0o600))
	a, b := daemontest.Pair(t, "[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"verbs\"\n")
	attachServer(t, b, map[string]server.Handler{
		"write": func(c *server.Call) error {
			if _, err := c.Region(0).WriteAt([]byte("landed"), 1); err != nil {
				return err
			}
			return c.Reply(nil)
		},
	})
	core, err := a.Core()
	check(t, err)
	mapped := func() (pages int) { // neighbours become one mapping, which is why they are not counted
		t.Helper()
		sizes, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", core))
		check(t, err)
		_, err = fmt.Sscan(string(sizes), &pages)
		check(t, err)
		return pages
	}
	const size = 1 << 20
	conn := attachClient(t, a)
	found(t, conn, "b/text/write")
	use := func() {
		t.Helper()
		region, err := conn.AllocRegion(t.Context(), size)
		check(t, err)
		ref, err := region.Ref(0, region.Len(), client.MayWrite)
		check(t, err)
		_, err = conn.CallRegions(t.Context(), "b/text/write", nil, ref)
		check(t, err)
		if got := region.Bytes()[1:7]; string(got) != "landed" {
			t.Fatalf("the region has %q", got)
		}
		check(t, region.Free())
	}
	use()
	const rounds, most = 2000, 256
	before, greatest := mapped(), 0
	for range rounds {
		use()
		greatest = max(greatest, (mapped()-before)*os.Getpagesize()/size)
	}
	// What else a core maps meanwhile, under the race detector most of all, is less than all of them.
	if greatest < most/2 || greatest > rounds/2 {
		t.Errorf("the places of up to %d regions of %d are kept", greatest, rounds)
	}
}
