package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// Operations whose connection cannot be made wait for it as long as for a link, and then fail.
func TestOpsWaitForTheirConnection(t *testing.T) {
	for _, c := range []struct {
		name, hold string
		back       bool
	}{{"back in time", "1m", true}, {"not back", "3s", false}} {
		t.Run(c.name, func(t *testing.T) { opsWithoutConnection(t, c.hold, c.back) })
	}
}

func opsWithoutConnection(t *testing.T, hold string, back bool) {
	file := filepath.Join(t.TempDir(), "broken")
	t.Setenv(daemon.BrittleEnv, file)
	a, b := daemontest.Pair(t, "link_hold = \""+hold+"\"\n[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"verbs\"\n")
	outcome := make(chan error, 1)
	attachServer(t, b, map[string]server.Handler{
		"nothing": func(c *server.Call) error { return c.Reply(nil) },
		"write": func(c *server.Call) error {
			_, err := c.Region(0).WriteAt([]byte("landed"), 1)
			outcome <- err
			return c.Reply(nil)
		},
	})
	conn := attachClient(t, a)
	found(t, conn, "b/text/nothing", "b/text/write")
	_, err := conn.Call(t.Context(), "b/text/nothing", nil) // opens the lanes
	check(t, err)

	missing := file + daemon.NoEndpoints
	check(t, os.WriteFile(missing, nil, 0o600))
	region, err := conn.AllocRegion(t.Context(), 4096)
	check(t, err)
	ref, err := region.Ref(0, region.Len(), client.MayWrite)
	check(t, err)
	over := make(chan error, 1)
	go func() {
		_, err := conn.CallRegions(t.Context(), "b/text/write", nil, ref)
		over <- err
	}()
	if !back {
		if err := <-outcome; !errors.Is(err, server.ErrLost) {
			t.Errorf("without a connection the operation ended with %v", err)
		}
		check(t, <-over)
		return
	}
	daemontest.Eventually(t, "the connection is tried again", func() error {
		tried, err := os.Stat(missing)
		if err == nil && tried.Size() < 4 {
			return fmt.Errorf("tried %d times", tried.Size())
		}
		return err
	})
	select {
	case err := <-outcome:
		t.Errorf("before there was a connection the operation ended with %v", err)
		outcome <- err
	default:
	}
	check(t, os.Remove(missing))
	check(t, <-outcome)
	check(t, <-over)
	if got := region.Bytes()[1:7]; string(got) != "landed" {
		t.Errorf("the region has %q", got)
	}
}

// Atomic operations are not sent to a node whose device has none, though that of this node has them.
func TestAtomicsOfThePeer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken")
	t.Setenv(daemon.BrittleEnv, file)
	a, b := daemontest.Pair(t, "[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"verbs\"\n")
	attachServer(t, b, map[string]server.Handler{
		"add": func(c *server.Call) error {
			_, err := c.Region(0).FetchAdd(0, 1)
			if errors.Is(err, server.ErrUnsupported) {
				return c.Reply([]byte("unsupported"))
			}
			if err != nil {
				return err
			}
			return c.Reply(nil)
		},
	})
	core, err := a.Core()
	check(t, err)
	check(t, os.WriteFile(file+daemon.NoAtomics, []byte(strconv.Itoa(core)), 0o600))
	conn := attachClient(t, a)
	region, err := conn.AllocRegion(t.Context(), 4096)
	check(t, err)
	ref, err := region.Ref(0, region.Len(), client.MayAtomic)
	check(t, err)
	found(t, conn, "b/text/add")
	answer, err := conn.CallRegions(t.Context(), "b/text/add", nil, ref)
	check(t, err)
	if string(answer) != "unsupported" || region.Bytes()[0] != 0 {
		t.Errorf("the handler answers %q, and the region has %d", answer, region.Bytes()[0])
	}
}
