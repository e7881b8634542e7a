package test

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// secured starts nodes a and b that encrypt all they say to each other.
func secured(t *testing.T) *cluster {
	t.Helper()
	// Only tcp can.
	return newPair(t, sandbox.Settings{Fabric: "tcp", TLS: true, TLSData: true})
}

// Processes on two nodes send small and large messages of all kinds to each other over
// encrypted connections; every answer is checked, every post arrives once.
func TestTLSData(t *testing.T) {
	c := secured(t)
	jobs := startService(t, c, "b", "jobs")
	startService(t, c, "b", "other")
	c.awaitService("a", "b", "jobs", "post", 0)
	c.awaitService("a", "b", "other", "flip", 0)
	var clients []*member
	for i := range 4 {
		clients = append(clients, startMember(t, "mixed", roleArgs{
			Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: 2000, Seed: uint64(i), Most: mostSize, Depth: 1 + 8*i,
		}))
	}
	big := startMember(t, "large", roleArgs{Socket: c.socket("a"), Node: "b", Service: "other", Messages: 2, Most: 24 << 20, Seed: 1})
	for range 2 {
		var n int
		if big.hear(&n); n != 24<<20 {
			t.Errorf("an answer of %d bytes", n)
		}
	}
	big.finish()
	sent := make([]mixed, len(clients))
	posts := int64(0)
	for i, m := range clients {
		m.hear(&sent[i])
		m.finish()
		posts += sent[i].Posts
	}
	c.awaitPosts("a", posts)
	compare(t, sent, []*member{jobs})
	run(t, rdmad(t, "status", "--socket", c.socket("a"))).check(t, "status", 0, "data encrypted", "data connections with TLS 1.3", "with node b")
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
	c.awaitNoRegions()
}

// Handlers of another node write, read and count in a region of a caller over an encrypted
// connection.
func TestTLSDataRegions(t *testing.T) {
	c := secured(t)
	startRegions(t, c)
	conn := c.attach("a")
	const size = 16 << 20
	region, ref := bind(t, conn, size, client.MayWrite|client.MayRead|client.MayAtomic)
	want := make([]byte, size)
	var all sync.WaitGroup
	for part := range regionParts {
		all.Go(func() {
			if _, err := conn.CallRegions(bounded(t), "b/regions/scatter", append(encoded(0), byte(part)), ref); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range size / regionPage {
		stream(want[i*regionPage:(i+1)*regionPage], uint64(i))
	}
	if !bytes.Equal(region.Bytes(), want) {
		t.Fatal("the region has other bytes")
	}
	a, err := conn.CallRegions(bounded(t), "b/regions/digest", nil, ref)
	if err != nil || binary.LittleEndian.Uint64(a) != digest(want) {
		t.Errorf("the handler has read something else: %v", err)
	}
	before := binary.NativeEndian.Uint64(region.Bytes())
	if _, err := conn.CallRegions(bounded(t), "b/regions/add", encoded(100), ref); err != nil {
		t.Error(err)
	}
	if sum := binary.NativeEndian.Uint64(region.Bytes()) - before; sum != 100 {
		t.Errorf("the sum is %d, want 100", sum)
	}
	if err := region.Free(); err != nil {
		t.Error(err)
	}
	c.awaitNoRegions()
}

// A core that is killed takes its encrypted connections with it; the next one makes new
// ones, by itself.
func TestTLSDataAfterACrash(t *testing.T) {
	c := secured(t)
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "transform", 0)
	for _, name := range []string{"a", "b"} {
		c.killCore(name)
		c.connected("a", "b")
		startService(t, c, "b", "jobs")
		c.awaitService("a", "b", "jobs", "transform", 0)
		m := startMember(t, "mixed", roleArgs{Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: 100, Seed: 1, Most: mostSize, Depth: 4})
		var sent mixed
		m.hear(&sent)
		m.finish()
	}
}
