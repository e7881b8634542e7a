package main

import (
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/status"
)

// Times have the unit that fits them.
func TestTook(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0.0 us", 1234: "1.2 us", 999_900: "999.9 us", 1_000_000: "1.00 ms", -2_500_000: "-2.50 ms", 3_500_000_000: "3.500 s", 61_000_000_000: "61.000 s",
	} {
		if got := took(ns); got != want {
			t.Errorf("%d ns is %q, want %q", ns, got, want)
		}
	}
}

// The path names the provider, the peer's address and what the provider says of the
// connection; a provider that says nothing of it has no part of its own.
func TestPathText(t *testing.T) {
	p := status.TracePath{Provider: "tcp", Address: "192.0.2.2:7471", Lane: 3, Class: "small", Slot: 5, Slots: 2}
	if text := pathText(&status.Trace{Path: p}); !strings.HasPrefix(text, "tcp to 192.0.2.2:7471, lane 3 (small 0), slots 5 to 6,") {
		t.Error(text)
	}
	p.Provider, p.Device = "verbs", "queue pair 0x11 of mlx5_0"
	if text := pathText(&status.Trace{Path: p}); !strings.HasPrefix(text, "verbs to 192.0.2.2:7471, queue pair 0x11 of mlx5_0, lane 3") {
		t.Error(text)
	}
}

// A trace that is not of all requests says so.
func TestSkippedText(t *testing.T) {
	for want, r := range map[string]traceResult{
		"": {Seen: 5},
		"\n3 of 5 requests that matched were not followed: too many at once, see --sample\n": {Seen: 5, Skipped: 3},
	} {
		if got := skippedText(&r); got != want {
			t.Errorf("%+v: %q", r, got)
		}
	}
}
