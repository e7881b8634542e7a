package main

import "testing"

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "64": 64, "64B": 64, "8KiB": 8192, "1 MiB": 1 << 20, "2GiB": 2 << 30, "9kB": 9000, "3MB": 3e6, "1GB": 1e9,
	} {
		var s byteSize
		if err := s.Set(text); err != nil || int(s) != want {
			t.Errorf("%q: %d, %v; want %d", text, s, err, want)
		}
	}
	for _, bad := range []string{"", "B", "KiB", "-1", "1.5KiB", "8 K", "8XiB", "99999999999", "2000000GiB", "0x10"} {
		var s byteSize
		if err := s.Set(bad); err == nil {
			t.Errorf("%q: accepted as %d", bad, s)
		}
	}
}
