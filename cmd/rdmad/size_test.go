package main

import (
	"strings"
	"testing"
)

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "64": 64, "64B": 64, "8KiB": 8192, "1 MiB": 1 << 20, "2GiB": 2 << 30, "9kB": 9000, "3MB": 3e6, "1GB": 1e9, "3000000000": 3e9, "3000000kB": 3e9, "1024GiB": 1 << 40,
	} {
		var s byteSize
		if err := s.Set(text); err != nil || int(s) != want {
			t.Errorf("%q: %d, %v; want %d", text, s, err, want)
		}
	}
	for _, bad := range []string{"", "B", "KiB", "-1", "1.5KiB", "8 K", "8XiB", "0x10"} {
		var s byteSize
		if err := s.Set(bad); err == nil || !strings.Contains(err.Error(), "number of bytes such as") {
			t.Errorf("%q: %v, accepted as %d", bad, err, s)
		}
	}
	for _, much := range []string{"1099511627777", "99999999999999999999", "2000000GiB", "99999999999999999999GB"} {
		var s byteSize
		if err := s.Set(much); err == nil || err.Error() != "want at most 1099511627776 bytes" {
			t.Errorf("%q: %v, accepted as %d", much, err, s)
		}
	}
}
