package counters

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rdmad/rdmad/shm"
)

// ErrNotRunning is returned by Open where there is no file: no daemon runs, it has stopped
// in an orderly way, or it is configured to have none.
var ErrNotRunning = errors.New("counters: there is no such file")

// ErrPermission is returned by Open for a file that this user may not read.
var ErrPermission = errors.New("counters: not readable for this user")

// Reader reads the file of a daemon, which need not run. It is for one goroutine at a time.
type Reader struct{ file *os.File }

// Open opens the file of counters at path. The caller must Close it. Errors wrap
// ErrNotRunning, ErrPermission, ErrDamaged, or are a *VersionError.
//
// A core that replaces another has another file: who looks for long opens it anew each
// time.
func Open(path string) (*Reader, error) {
	// Not a device, nor a pipe that would have to be waited for.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrDamaged, path)
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNotRunning, path)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w: %s", ErrPermission, path)
	case err != nil:
		return nil, fmt.Errorf("counters: %w", err)
	}
	r := &Reader{f}
	if _, err := r.shape(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Snapshot reads the file. It is read, not mapped: whoever may write to it could make it
// shorter meanwhile.
func (r *Reader) Snapshot() (*Snapshot, error) {
	s, err := r.shape()
	if err != nil {
		return nil, err
	}
	mem, err := r.read(s.size())
	if err != nil {
		return nil, err
	}
	return decode(mem)
}

func (r *Reader) shape() (shape, error) {
	mem, err := r.read(headSize)
	if err != nil {
		return shape{}, err
	}
	return checkHead(mem)
}

// read returns the first n bytes, aligned.
func (r *Reader) read(n int) ([]byte, error) {
	mem := shm.AlignedBytes(n)
	switch _, err := r.file.ReadAt(mem, 0); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: it has less than %d bytes", ErrDamaged, n)
	case err != nil:
		return nil, fmt.Errorf("counters: %w", err)
	}
	return mem, nil
}
