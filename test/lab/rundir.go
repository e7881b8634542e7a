package main

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// runPrefix begins the names of directories of runs.
const runPrefix = "run-"

// makeRunDir makes a directory with what a guest gets from this run: the agent,
// which is this program, and the token. It is locked until the returned function
// removes it. Directories of runs that were killed are removed too. The cache
// must be locked.
func makeRunDir(ctx context.Context, cache string) (dir, token string, remove func(), err error) {
	old, err := filepath.Glob(filepath.Join(cache, runPrefix+"*"))
	if err != nil {
		return "", "", nil, err
	}
	for _, dir := range old {
		removeDead(dir)
	}
	if dir, err = os.MkdirTemp(cache, runPrefix); err != nil {
		return "", "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err == nil {
		remove = func() { os.RemoveAll(dir); unlock() }
		token = rand.Text()
		err = os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600)
	}
	if err == nil {
		err = copySelf(filepath.Join(dir, "lab"))
	}
	if err != nil {
		remove()
		return "", "", nil, err
	}
	return dir, token, remove, nil
}

// removeDead removes the directory of a run that nobody has locked.
func removeDead(dir string) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err == nil {
		defer f.Close()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return
		}
	}
	os.RemoveAll(dir)
}

// copySelf copies this program, which may be built again while the guest runs.
func copySelf(to string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(to, self, 0o755)
}
