package verbs

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

func goodAddress(mode wireMode) address {
	a := address{
		mode: mode, linkLayer: linkEthernet, gidType: gidRoCEv2, gid: netip.MustParseAddr("::ffff:10.9.9.1"),
		mtu: 1024, reads: 16, token: token{1, 2, 3},
	}
	if mode == wireCM {
		a.listen = netip.MustParseAddrPort("10.9.9.1:4791")
	} else {
		a.qpn, a.psn, a.ctlQPN, a.ctlSecret = 0x11, 0xabcdef, 0x12, 0x7fffffff
	}
	return a
}

func TestAddressRoundTrip(t *testing.T) {
	ib := goodAddress(wireOOB)
	ib.linkLayer, ib.gidType, ib.gid, ib.lid = linkInfiniBand, gidIB, netip.MustParseAddr("fe80::1"), 7
	global := ib
	global.grh = true
	v6 := goodAddress(wireCM)
	v6.listen = netip.MustParseAddrPort("[2001:db8::1]:1")
	for _, a := range []address{goodAddress(wireOOB), goodAddress(wireCM), ib, global, v6} {
		b := a.encode()
		got, err := decodeAddress(b)
		if err != nil || got != a || len(b) > fabric.MaxAddress {
			t.Errorf("%+v became %+v (%d bytes): %v", a, got, len(b), err)
		}
	}
}

func TestAddressRefused(t *testing.T) {
	oob, cm := goodAddress(wireOOB).encode(), goodAddress(wireCM).encode()
	for name, c := range map[string]struct {
		from   []byte
		change func(b []byte) []byte
	}{
		"empty":            {nil, func([]byte) []byte { return nil }},
		"short":            {oob, func(b []byte) []byte { return b[:len(b)-1] }},
		"long":             {oob, func(b []byte) []byte { return append(b, 0) }},
		"version":          {oob, func(b []byte) []byte { b[0]++; return b }},
		"mode":             {oob, func(b []byte) []byte { b[1] = 3; return b }},
		"link layer":       {oob, func(b []byte) []byte { b[2] = 9; return b }},
		"GID type":         {oob, func(b []byte) []byte { b[3] = 0; return b }},
		"IB GID on RoCE":   {oob, func(b []byte) []byte { b[3] = 1; return b }},
		"LID on Ethernet":  {oob, func(b []byte) []byte { b[4] = 1; return b }},
		"MTU":              {oob, func(b []byte) []byte { b[6] = 1; return b }},
		"MTU 0":            {oob, func(b []byte) []byte { b[6], b[7] = 0, 0; return b }},
		"queue pair 0":     {oob, func(b []byte) []byte { b[8] = 0; return b }},
		"queue pair":       {oob, func(b []byte) []byte { b[11] = 1; return b }},
		"sequence number":  {oob, func(b []byte) []byte { b[15] = 1; return b }},
		"control pair":     {oob, func(b []byte) []byte { b[19] = 1; return b }},
		"queue pair 1":     {oob, func(b []byte) []byte { b[8] = 1; return b }},
		"every queue pair": {oob, func(b []byte) []byte { b[8], b[9], b[10] = 0xff, 0xff, 0xff; return b }},
		"control pair 1":   {oob, func(b []byte) []byte { b[16] = 1; return b }},
		"control pairs":    {oob, func(b []byte) []byte { b[16], b[17], b[18] = 0xff, 0xff, 0xff; return b }},
		"privileged key":   {oob, func(b []byte) []byte { b[23] |= 0x80; return b }},
		"GID of nobody":    {oob, func(b []byte) []byte { clear(b[24:40]); return b }},
		"GID of a group":   {oob, func(b []byte) []byte { b[24] = 0xff; return b }},
		"IPv4 group":       {oob, func(b []byte) []byte { b[36] = 224; return b }},
		"IPv4 nowhere":     {oob, func(b []byte) []byte { clear(b[36:40]); return b }},
		"IPv4 everybody":   {oob, func(b []byte) []byte { copy(b[36:40], "\xff\xff\xff\xff"); return b }},
		"no token":         {oob, func(b []byte) []byte { clear(b[40:56]); return b }},
		"padding":          {oob, func(b []byte) []byte { b[57] = 2; return b }},
		"a route header":   {oob, func(b []byte) []byte { b[57] = 1; return b }},
		"a listener":       {oob, func(b []byte) []byte { b[58] = 1; return b }},
		"listening port 0": {cm, func(b []byte) []byte { b[58], b[59] = 0, 0; return b }},
		"listening nowhere": {cm, func(b []byte) []byte {
			clear(b[60:])
			return b
		}},
		"listening group": {cm, func(b []byte) []byte { b[72] = 239; return b }},
		"listening everywhere": {cm, func(b []byte) []byte {
			copy(b[72:], "\xff\xff\xff\xff")
			return b
		}},
		"a queue pair": {cm, func(b []byte) []byte { b[8] = 1; return b }},
	} {
		if a, err := decodeAddress(c.change(bytes.Clone(c.from))); !errors.Is(err, errAddress) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestMismatch(t *testing.T) {
	here := goodAddress(wireOOB)
	if err := mismatch(here, goodAddress(wireOOB)); err != nil {
		t.Error(err)
	}
	v1 := goodAddress(wireOOB)
	v1.gidType = gidRoCEv1
	ib := goodAddress(wireOOB)
	ib.linkLayer = linkInfiniBand
	for _, c := range []struct {
		there address
		says  []string
	}{
		{goodAddress(wireCM), []string{"this side connects by oob", "the peer by rdmacm"}},
		{ib, []string{"on Ethernet", "the peer's on InfiniBand"}},
		{v1, []string{"RoCE v2", "RoCE v1", "gid_index"}},
	} {
		err := mismatch(here, c.there)
		for _, s := range c.says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%v does not say %q", err, s)
			}
		}
	}
}

func FuzzDecodeAddress(f *testing.F) {
	f.Add(goodAddress(wireOOB).encode())
	f.Add(goodAddress(wireCM).encode())
	f.Add([]byte{addressVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAddress(b)
		if err != nil {
			return
		}
		if !bytes.Equal(a.encode(), b) {
			t.Errorf("%x became %+v and then %x", b, a, a.encode())
		}
		_ = a.String()
	})
}

func FuzzDecodeMessage(f *testing.F) {
	m := message{kind: msgReadyBoth, to: newToken(), from: newToken()}.encode()
	f.Add(m[:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		if again := m.encode(); !bytes.Equal(again[:], b) {
			t.Errorf("%x became %+v and then %x", b, m, again)
		}
	})
}

func TestRandomNumbers(t *testing.T) {
	seen := map[uint32]bool{}
	for range 100 {
		n, k := random24(), random31()
		if n > max24 || k>>31 != 0 {
			t.Fatalf("numbers %#x, %#x", n, k)
		}
		seen[n] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different numbers of 100", len(seen))
	}
}
