package nodecert

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// halfMade are the names of files that are being made.
const halfMade = ".rdmad-certs-*"

// holdLimit is how long one who makes certificates waits for another: that takes moments.
const (
	holdLimit = 10 * time.Second
	holdLook  = 10 * time.Millisecond
)

// hold opens a directory and keeps others from making certificates there until it is closed. What one that was killed has half
// made, such as private keys, is removed. A file system without locks has neither.
func hold(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(holdLimit); ; time.Sleep(holdLook) {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("another process makes certificates in %s, for more than %v (see: fuser -v %s)", dir, holdLimit, dir), d.Close())
		}
	}
	if err != nil {
		return d, nil
	}
	left, err := filepath.Glob(filepath.Join(quoted(dir), halfMade))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// quoted is a path as a pattern that only it matches.
func quoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
