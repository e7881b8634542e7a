package main

import (
	"fmt"
	"io"
)

// archive writes a cpio archive in the "newc" format, which Linux unpacks as its
// first file system.
type archive struct {
	w     io.Writer
	inode int
	err   error
}

// File types of cpio.
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioChar = 0o020000
)

// entry appends a file. Device numbers are for character devices.
func (a *archive) entry(name string, mode int, content []byte, major, minor int) {
	a.inode++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0, name)
	a.write([]byte(head))
	a.write(content)
}

// write appends bytes and fills them up to a multiple of four.
func (a *archive) write(b []byte) {
	b = append(b[:len(b):len(b)], make([]byte, -len(b)&3)...)
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
}

func (a *archive) dir(name string)                      { a.entry(name, cpioDir|0o755, nil, 0, 0) }
func (a *archive) file(name string, b []byte, perm int) { a.entry(name, cpioFile|perm, b, 0, 0) }

// device appends a character device.
func (a *archive) device(name string, major, minor int) {
	a.entry(name, cpioChar|0o600, nil, major, minor)
}

// close ends the archive and returns the first error.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil, 0, 0)
	return a.err
}
