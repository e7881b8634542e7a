package main

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The service and its methods. All numbers are little endian.
const (
	service = "pages"
	// statMethod answers with the file's state; see fileState.
	statMethod = "stat"
	// readMethod takes the index of a page, 8 bytes, and answers with the page:
	// pageSize bytes, fewer for the last one.
	readMethod = "read"
	// sumMethod answers with the SHA-256 of the file.
	sumMethod = "sum"

	pageSize  = 8192
	indexSize = 8
	stateSize = 16
)

// fileState is what tells versions of a file apart: its size and when it was
// last written.
type fileState struct {
	size  uint64
	mtime int64 // ns since 1970
}

func (s fileState) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, s.size)
	binary.LittleEndian.PutUint64(b[8:], uint64(s.mtime))
}

func decodeState(b []byte) (fileState, error) {
	if len(b) != stateSize {
		return fileState{}, fmt.Errorf("%s answered %d bytes, want %d", statMethod, len(b), stateSize)
	}
	return fileState{binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))}, nil
}

// pages returns how many pages the file has.
func (s fileState) pages() uint64 { return (s.size + pageSize - 1) / pageSize }

// length returns how many bytes page i has, for i below pages.
func (s fileState) length(i uint64) int { return int(min(pageSize, s.size-i*pageSize)) }

func (s fileState) String() string {
	return fmt.Sprintf("%d bytes of %s", s.size, time.Unix(0, s.mtime).Format(time.RFC3339Nano))
}
