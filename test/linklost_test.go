package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/server"
)

// flooding returns how many handlers of node b write to regions at the moment. It asks by
// way of b itself.
func flooding(t *testing.T, conn *client.Conn) uint64 {
	t.Helper()
	a, err := conn.Call(bounded(t), "b/regions/flooding", nil)
	if err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(a)
}

// ended returns how the last of them has ended.
func ended(t *testing.T, conn *client.Conn) string {
	t.Helper()
	a, err := conn.Call(bounded(t), "b/regions/ended", nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(a)
}

// A link that stays away for longer than it is waited for: operations on regions of the
// other node end as lost, requests have their outcome, and no byte changes after it. When
// the link is back, the regions can be used again.
func TestRegionsOfALostLink(t *testing.T) {
	c, cutters := newCutPair(t, sandbox.Settings{LinkHold: "3s"})
	startRegions(t, c)
	conn, there := c.attach("a"), c.attach("b")
	region, ref := bind(t, conn, 1<<20, client.MayWrite|client.MayRead)
	m, err := conn.Method(bounded(t), "b/regions/flood")
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.GoRegions(bounded(t), nil, ref)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it writes", func() bool { return flooding(t, there) == 1 && c.status("b").Counters["region_ops"] > 100 })
	for _, k := range cutters {
		k.cut(true)
	}
	if _, err := f.Wait(bounded(t)); !errors.Is(err, client.ErrMaybeExecuted) {
		t.Errorf("the call ended with %v", err)
	}
	after := bytes.Clone(region.Bytes())
	eventually(t, "the handler ends", func() bool { return flooding(t, there) == 0 })
	if s := ended(t, there); !strings.Contains(s, server.ErrLost.Error()) {
		t.Errorf("the handler ended with %q", s)
	}
	for _, k := range cutters {
		k.join()
	}
	if !bytes.Equal(after, region.Bytes()) {
		t.Error("bytes have changed after the outcome")
	}
	c.awaitService("a", "b", "regions", "scatter", 0)
	c.useAndFree(conn, region, ref)
}

// Regions that end while the link is lost are ended on the other node when it is back:
// those that were freed, whose memory is given back at once, and those whose owner has
// died, with the operations on them. That the link is lost again before the other node
// has heard of it makes no difference.
func TestRegionsEndWithoutLink(t *testing.T) {
	for name, lost := range map[string][]byte{"heard of at once": nil, "heard of in the second session": []byte(`"type":"revoke"`)} {
		t.Run(name, func(t *testing.T) { testRegionsEndWithoutLink(t, lost) })
	}
}

// testRegionsEndWithoutLink loses the first message that contains lost, if there is any
// such text.
func testRegionsEndWithoutLink(t *testing.T, lost []byte) {
	c, cutters := newCutPair(t, sandbox.Settings{LinkHold: "1m"})
	startRegions(t, c)
	conn, there := c.attach("a"), c.attach("b")
	region, ref := bind(t, conn, 1<<20, client.MayWrite)
	if _, err := conn.CallRegions(bounded(t), "b/regions/scatter", append(encoded(5), 0), ref); err != nil {
		t.Fatal(err)
	}
	victim := startMember(t, "flooded", roleArgs{Socket: c.socket("a"), Node: "b", Service: "regions"})
	var pid int
	victim.hear(&pid)
	eventually(t, "its region is written to", func() bool { return flooding(t, there) == 1 })
	for _, k := range cutters {
		k.cut(true)
	}
	eventually(t, "the link is lost", func() bool { return c.status("a").Peers[0].State != "connected" })
	if err := region.Free(); err != nil {
		t.Error(err)
	}
	eventually(t, "its memory is given back", func() bool { return c.segments("a") == 1 })
	_ = victim.kill()
	for _, k := range cutters {
		if lost != nil {
			k.until.Store(&lost)
		}
		k.join()
	}
	eventually(t, "the handler ends", func() bool { return flooding(t, there) == 0 })
	if lost != nil && cutters[0].until.Load() != nil && cutters[1].until.Load() != nil {
		t.Error("the message was not lost")
	}
	if s := ended(t, there); !strings.Contains(s, server.ErrExpired.Error()) {
		t.Errorf("the handler ended with %q", s)
	}
	c.awaitQuiet("a", pid)
	c.awaitNoRegions()
}

// Requests wait for a lost link for node.link_hold, and not longer: what was sent may have
// been executed then, what was only published was not. If the link is back in time they
// are answered.
func TestLinkHold(t *testing.T) {
	for _, c := range []struct {
		name, hold string
		back       bool
	}{{"back in time", "1m", true}, {"too late", "3s", false}} {
		t.Run(c.name, func(t *testing.T) {
			nodes, cutters := newCutPair(t, sandbox.Settings{LinkHold: c.hold})
			m := startMember(t, "service", roleArgs{Socket: nodes.socket("b"), Service: "jobs", Handlers: 1})
			var pid int
			m.hear(&pid)
			nodes.awaitService("a", "b", "jobs", "sleep", 0)
			method, err := nodes.attach("a").Method(bounded(t), "b/jobs/sleep")
			if err != nil {
				t.Fatal(err)
			}
			var fs []*client.Future
			send := func() {
				f, err := method.Go(bounded(t), make([]byte, 8))
				if err != nil {
					t.Fatal(err)
				}
				fs = append(fs, f)
			}
			if _, err := method.Call(bounded(t), make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			if !c.back { // the only handler is busy until the process ends
				hang, err := nodes.attach("a").Method(bounded(t), "b/jobs/hang")
				if err != nil {
					t.Fatal(err)
				}
				f, err := hang.Go(bounded(t), nil)
				if err != nil {
					t.Fatal(err)
				}
				fs = append(fs, f)
			}
			for range 200 {
				send()
			}
			eventually(t, "requests are on their way", func() bool { return nodes.status("a").Counters["requests_sent"] > 100 })
			for _, k := range cutters {
				k.cut(true)
			}
			eventually(t, "the link is lost", func() bool { return nodes.status("a").Peers[0].State != "connected" })
			if c.back {
				send()
				for _, k := range cutters {
					k.join()
				}
			}
			ends := map[string]int{}
			for _, f := range fs {
				_, err := f.Wait(bounded(t))
				switch {
				case err == nil:
					ends["answered"]++
				case errors.Is(err, client.ErrMaybeExecuted):
					ends["maybe"]++
				case errors.Is(err, client.ErrNotExecuted):
					ends["not"]++
				default:
					t.Errorf("an outcome: %v", err)
				}
			}
			t.Logf("outcomes: %v", ends)
			if c.back && ends["answered"] != len(fs) || !c.back && ends["maybe"] < 100 {
				t.Errorf("outcomes: %v", ends)
			}
		})
	}
}
