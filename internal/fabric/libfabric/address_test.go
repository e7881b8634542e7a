package libfabric

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

func testAddress() address {
	return address{
		dataSize: 8, version: 117 << 16, host: 1, anchorAddr: 2, anchorKey: 3, token: token{4},
		provider: "tcp;ofi_rxm", name: []byte("name"), control: []byte("control"),
	}
}

func TestAddress(t *testing.T) {
	a := testAddress()
	b, err := decodeAddress(a.encode())
	if err != nil || !reflect.DeepEqual(a, b) {
		t.Fatalf("%+v became %+v, %v", a, b, err)
	}
	a.provider, a.name, a.control = strings.Repeat("p", maxProvider), make([]byte, maxName), make([]byte, maxName)
	if n := len(a.encode()); n > fabric.MaxAddress {
		t.Errorf("the longest address has %d bytes", n)
	}
	good := testAddress().encode()
	for at := range good {
		if _, err := decodeAddress(good[:at]); !errors.Is(err, errAddress) {
			t.Errorf("%d bytes: %v", at, err)
		}
	}
	for _, at := range []int{0, 2, 3, 48, 49, 50, 51, 52, 55} {
		bad := append([]byte(nil), good...)
		bad[at] ^= 0x80
		if _, err := decodeAddress(bad); !errors.Is(err, errAddress) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}

// What differs is said, with both values.
func TestFits(t *testing.T) {
	shm := testAddress()
	shm.provider = shmProvider
	for name, c := range map[string]struct {
		here   address
		change func(*address)
		says   []string // nil: it fits
	}{
		"same":            {testAddress(), func(*address) {}, nil},
		"other version":   {testAddress(), func(a *address) { a.version++ }, nil},
		"other provider":  {testAddress(), func(a *address) { a.provider = "efa" }, []string{"provider", `"tcp;ofi_rxm"`, `"efa"`}},
		"other data":      {testAddress(), func(a *address) { a.dataSize = 4 }, []string{"data", "8 here", "4 there"}},
		"shm":             {shm, func(*address) {}, nil},
		"shm, other host": {shm, func(a *address) { a.host++ }, []string{"host", "one host"}},
		"shm, version":    {shm, func(a *address) { a.version++ }, []string{"117.0 here", "117.1 there"}},
	} {
		there := c.here
		c.change(&there)
		err := c.here.fits(there)
		var pe *PeerError
		if c.says == nil && err != nil || c.says != nil && !errors.As(err, &pe) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: no %q in %v", name, s, err)
			}
		}
	}
}

func TestMessage(t *testing.T) {
	m := message{kind: msgGone, why: fabric.StatusRemoteAccess, to: token{1}, from: token{2}}
	b := m.encode()
	if got, err := decodeMessage(b[:]); err != nil || got != m {
		t.Fatalf("%+v became %+v, %v", m, got, err)
	}
	for _, at := range []int{0, 4, 5, 6, 7, 40, 63} {
		bad := b
		bad[at] ^= 0x80
		if _, err := decodeMessage(bad[:]); err == nil {
			t.Errorf("byte %d may be wrong", at)
		}
	}
	if _, err := decodeMessage(b[:40]); err == nil {
		t.Error("40 bytes are a message")
	}
}

func FuzzDecodeAddress(f *testing.F) {
	f.Add(testAddress().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAddress(b)
		if err != nil {
			return
		}
		if again, err := decodeAddress(a.encode()); err != nil || !reflect.DeepEqual(a, again) {
			t.Errorf("%+v became %+v, %v", a, again, err)
		}
	})
}

// Every error says what it is about.
func TestErrors(t *testing.T) {
	for vendor := range uint32(4) {
		for status := fabric.StatusLocalLength; status <= fabric.StatusFatal; status++ {
			c := fabric.Completion{Status: status, Vendor: VendorPeerClosed + vendor}
			e := &CompletionError{Completion: c, Device: "device", Peer: "peer"}
			e.Cause, e.Next = likely(c)
			var se *fabric.StatusError
			if e.Cause == "" || e.Next == "" || !errors.As(e, &se) || se.Status != status || !strings.Contains(e.Error(), e.Cause) {
				t.Errorf("%+v: %v", c, e)
			}
		}
	}
	if e := (&OpenError{Key: "domain", Detail: "detail", Err: ErrNoDomain}); !errors.Is(e, ErrNoDomain) || !strings.Contains(e.Error(), "domain") {
		t.Error(e)
	}
	if e := (&CallError{Call: "fi_call", Code: 5, Text: "text"}); !strings.Contains(e.Error(), "fi_call: text") {
		t.Error(e)
	}
}
