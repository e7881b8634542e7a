package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// byteSize is a flag for a number of bytes, such as 64, 8KiB or 1MiB.
type byteSize int

// sizeUnits are the units of a byteSize. The longest endings come first.
var sizeUnits = []struct {
	name  string
	bytes int
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"B", 1},
}

// mostSize is far above what any command takes, which says itself what that is.
const mostSize = 1 << 40

// Set implements pflag.Value.
func (s *byteSize) Set(text string) error {
	number, unit := text, 1
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = n, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > mostSize/uint64(unit):
		return fmt.Errorf("want at most %d bytes", uint64(mostSize))
	case err != nil:
		return errors.New("want a number of bytes such as 64, 8KiB or 1MiB")
	}
	*s = byteSize(int(n) * unit)
	return nil
}

// String implements pflag.Value. Negative sizes stand for a default that only
// the command knows.
func (s *byteSize) String() string {
	if *s < 0 {
		return ""
	}
	return strconv.Itoa(int(*s))
}

// Type implements pflag.Value.
func (*byteSize) Type() string { return "bytes" }
