package otelx

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/rdmad/rdmad/client"
)

// What was set comes back; what does not fit is left out, the largest first.
func TestCarrier(t *testing.T) {
	var c carrier
	c.Set("traceparent", "one")
	c.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	c.Set("tracestate", strings.Repeat("s", 512))
	c.Set("baggage", strings.Repeat("b", 800))
	b := c.encode()
	if len(b) > client.MaxCarried {
		t.Fatalf("%d bytes", len(b))
	}
	got := decode(b)
	if got.Get("traceparent") != c.Get("traceparent") || got.Get("tracestate") != c.Get("tracestate") || !slices.Equal(got.Keys(), []string{"traceparent", "tracestate"}) {
		t.Errorf("%+v", got)
	}
	if (&carrier{}).encode() != nil {
		t.Error("nothing is something")
	}
	c = carrier{}
	c.Set("big", strings.Repeat("x", 4000))
	c.Set(strings.Repeat("k", 256), "v")
	if b := c.encode(); b != nil {
		t.Errorf("%d bytes of what cannot be encoded", len(b))
	}
	for _, bad := range []string{"", "\x02\x01\x01\x00ab", "\x01\x01\x01", "\x01\x00\x01\x00a", "\x01\x02\x02\x00abc", "\x01" + strings.Repeat("\x01\x01\x00ab", maxEntries+1)} {
		if got := decode([]byte(bad)); len(got.entries) != 0 {
			t.Errorf("%q was taken for %+v", bad, got)
		}
	}
}

// Vectors of the W3C recommendation, as they come out of a request: the propagator judges
// them.
func TestTraceparents(t *testing.T) {
	for header, valid := range map[string]bool{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":       true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00":       true,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what":  true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra": false,
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":       false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":       false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":       false,
		"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01":       false,
		"00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01":        false,
		"": false,
	} {
		var c carrier
		c.Set("traceparent", header)
		c.Set("tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
		ctx := propagation.TraceContext{}.Extract(context.Background(), decode(c.encode()))
		got := trace.SpanContextFromContext(ctx)
		if got.IsValid() != valid || valid && (!got.IsRemote() || got.TraceID().String() != header[3:35] || got.SpanID().String() != header[36:52] || got.IsSampled() != (header[54] == '1') || got.TraceState().Get("congo") != "t61rcWkgMzE") {
			t.Errorf("%q: %+v", header, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	var c carrier
	c.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	c.Set("tracestate", "a=b")
	f.Add(c.encode())
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0xff, 0xff, 'a'})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := decode(b)
		if len(got.entries) > maxEntries || size(got.entries) > len(b)+1 {
			t.Fatalf("%d entries of %d bytes out of %d", len(got.entries), size(got.entries), len(b))
		}
		propagation.TraceContext{}.Extract(context.Background(), got)
		propagation.Baggage{}.Extract(context.Background(), got)
		if len(b) <= client.MaxCarried && len(got.entries) > 0 {
			if again := got.encode(); string(again) != string(b) && again != nil {
				// Entries that encode leaves out, or merges, are the only difference.
				if len(again) > len(b) {
					t.Errorf("%q became %q", b, again)
				}
			}
		}
	})
}
