//go:build libfabric && cgo && linux

package libfabric

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Where immediates go as messages, more of them than the library has room for wait, some of them after their write,
// which is not written again; every one arrives once, in order, with the length of its write, and after its bytes.
func TestNoticesWithoutRoom(t *testing.T) {
	const depth, size = 4096, 8
	eachProvider(t, func(t *testing.T, cfg Config) {
		p := newPairingOf(t, &provider{cfg: cfg, demands: withNotices()}, nil, depth, depth*size)
		defer p.close()
		if c := p.dev[0].Caps(); c.UnsizedImm || !strings.Contains(p.dev[0].Describe(), "immediates as messages") {
			t.Errorf("%+v, %s", c, p.dev[0].Describe())
		}
		wrs := make([]fabric.SendWR, depth)
		key := p.mr[0].Remote()
		for i := range wrs {
			copy(p.mr[1].Bytes()[i*size:], pattern(i, size))
			wrs[i] = fabric.SendWR{
				ID: uint64(i), Op: fabric.OpWriteImm, Imm: uint32(i), Flags: fabric.FlagSignaled,
				Local:      fabric.Local{Region: p.mr[1], Offset: uint64(i * size), Len: uint32(1 + i%size)},
				RemoteAddr: key.Addr + uint64(i*size), RemoteKey: key.Key,
			}
		}
		n, err := p.ep[1].PostSend(wrs)
		if n != depth || err != nil {
			t.Fatalf("PostSend took %d, %v", n, err)
		}
		n, err = p.ep[0].PostRecv(make([]fabric.RecvWR, depth))
		if n != depth || err != nil {
			t.Fatalf("PostRecv took %d, %v", n, err)
		}
		var next [2]int
		p.collect(func(end int, c fabric.Completion) bool {
			i := next[end]
			next[end]++
			if c.Status != fabric.StatusSuccess || end == 1 && c.ID != uint64(i) || end == 0 && (c.Imm != uint32(i) || c.Len != wrs[i].Local.Len) {
				t.Fatalf("end %d, completion %d: %+v", end, i, c)
			}
			if end == 0 {
				got := p.mr[0].Bytes()[i*size : (i+1)*size]
				if n := int(c.Len); !bytes.Equal(got[:n], pattern(i, size)[:n]) {
					t.Fatalf("write %d brought %x", i, got)
				}
				clear(got)
			}
			return next == [2]int{depth, depth}
		})
		if !bytes.Equal(p.mr[0].Bytes(), make([]byte, depth*size)) {
			t.Error("something was written again after it had arrived")
		}
		s := p.ep[1].Stats()
		t.Logf("%+v", s)
		if s.Sends != depth || s.Again == 0 {
			t.Errorf("there was always room: %+v", s)
		}
	})
}

// pattern is what a write of a test brings: bytes that are not 0.
func pattern(i, size int) []byte {
	b := make([]byte, size)
	for j := range b {
		b[j] = byte(1 + (i+j)%255)
	}
	return b
}

// An end whose immediates are messages is not connected with one whose are not.
func TestNoticesDiffer(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if asMessages(cfg.Provider) {
			t.Skip("it has no other way")
		}
		var ends [2]fabric.Endpoint
		for i, m := range []*demands{nil, withNotices()} {
			d, err := (&provider{cfg: cfg, demands: m}).Open(fabric.Options{Listen: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = endOf(t, d)
		}
		for i, e := range ends {
			var pe *PeerError
			if err := e.Connect(context.Background(), ends[1-i].Address(), fabric.Active); !errors.As(err, &pe) || pe.Here == pe.There {
				t.Error(err)
			}
		}
	})
}

// The provider that needs shared receives, no cache of registrations, and messages that stay behind writes, is
// refused without them.
func TestVerbsNeeds(t *testing.T) {
	for _, c := range []struct {
		shares, caches bool
		says           string
	}{{true, false, ""}, {false, false, "FI_OFI_RXM_USE_SRX"}, {true, true, "FI_MR_CACHE_MAX_COUNT"}} {
		if why := verbsUnfit(c.shares, c.caches); (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%+v: %q", c, why)
		}
	}
	const env = "FI_OFI_RXM_USE_SRX"
	for value, want := range map[string]bool{"1": true, "yes": true, "0": false, "no": false, "nonsense": false} {
		t.Setenv(env, value)
		if got := sharesReceives(); got != want {
			t.Errorf("%s=%s: %v", env, value, got)
		}
	}
	i := &rawInfo{caps: ^uint64(0), order: bitOrder}
	i.DeviceInfo = DeviceInfo{Provider: verbsProvider, Endpoint: "RDM", Limits: Limits{Data: 4}}
	if why := i.unfit(); !strings.Contains(why, "FI_ORDER_SAW") {
		t.Errorf("%q", why)
	}
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(env, "0")
	d, err := newProvider(t, Config{Provider: verbsProvider}).Open(fabric.Options{})
	if err == nil {
		_ = d.Close()
	}
	var oe *OpenError
	if !slices.ContainsFunc(all, func(d DeviceInfo) bool { return d.Provider == verbsProvider && d.Endpoint == "RDM" }) {
		t.Log("libfabric finds no RDMA device here; the lab has one: make lab")
	} else if !errors.As(err, &oe) || oe.Key != "provider" || !errors.Is(err, ErrCapability) || !strings.Contains(err.Error(), env) {
		t.Error(err)
	}
}
