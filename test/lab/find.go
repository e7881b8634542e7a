package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxCopy is the size up to which programs are copied into the guest's memory.
const maxCopy = 256 << 20

// findProgram returns the path of the request's program and a function that
// removes what was made for it.
//
// Programs that are not part of the host's system are copied into memory first:
// from there they start at once, the copy cannot change while it runs, and it is
// made from the host's file as it is now, whatever the guest saw there before.
func (a *agent) findProgram(req request) (path string, remove func(), err error) {
	remove = func() {}
	path, err = lookProgram(req)
	if err != nil || a.live == "" || ofSystem(path) {
		return path, remove, err
	}
	from, err := openLive(a.live, path)
	if err != nil {
		return path, remove, nil // the guest's own
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return "", remove, err
	}
	magic := make([]byte, 4)
	_, _ = from.ReadAt(magic, 0)
	// Scripts want to know where they are.
	if !bytes.Equal(magic, []byte("\x7fELF")) || info.Mode()&0o111 == 0 || info.Size() > maxCopy {
		return path, remove, nil
	}
	dir, err := os.MkdirTemp(a.programs, "")
	if err != nil {
		return "", remove, err
	}
	remove = func() { os.RemoveAll(dir) }
	copied := filepath.Join(dir, filepath.Base(path))
	if err := copyProgram(copied, from); err != nil {
		remove()
		return "", func() {}, err
	}
	return copied, remove, nil
}

// lookProgram returns the absolute path of the request's program.
func lookProgram(req request) (string, error) {
	name := req.Args[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(req.Dir, name)
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(lookupEnv(req.Env, "PATH")) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// ofSystem reports whether a file belongs to the host's system, which does not
// change while a guest runs.
func ofSystem(path string) bool {
	for _, dir := range []string{"/usr/", "/bin/", "/sbin/", "/lib", "/etc/", "/opt/"} {
		if strings.HasPrefix(path, dir) {
			return true
		}
	}
	return false
}

// openLive opens a file of the host. Symbolic links lead where they do on the
// host.
func openLive(live, path string) (*os.File, error) {
	root, err := os.Open(live)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// copyProgram writes a new program. Large reads are what the host's files are
// fast with.
func copyProgram(to string, from io.Reader) error {
	// A program cannot be run while a process has it open for writing, and one
	// that is just being forked for another command would inherit the descriptor.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{from}, make([]byte, 1<<20))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
