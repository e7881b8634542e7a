//go:build libfabric && cgo && linux

package libfabric

import (
	"crypto/rand"
	"encoding/binary"
)

func newToken() token {
	var t token
	// crypto/rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(t[:])
	return t
}

// random64 returns what nobody can guess.
func random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}
