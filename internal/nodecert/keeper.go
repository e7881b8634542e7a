package nodecert

import (
	"crypto/x509"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// fresh is how young a file may be for its times to say little: it could be written
// again without a change of them. Such files are read again next time.
const fresh = 100 * time.Millisecond

// stamp tells whether a file has changed since.
type stamp struct {
	inode            uint64
	size             int64
	modified, change syscall.Timespec
}

// Keeper keeps the material of a node up to date with its files. Its methods are
// safe for concurrent use.
type Keeper struct {
	files Files
	node  string
	// event is told of material that was read again, or why the files cannot be
	// used and the last that could is kept. Each is told once.
	event func(*Material, error)

	// These belong to the look that is under way, of which there is at most one.
	seen    [3]stamp
	settled bool // seen is old enough to be relied on
	lastErr string

	mu      sync.Mutex
	current *Material
	// looking is closed at the end of the look that is under way; nil while none is. began is when it began.
	looking chan struct{}
	began   time.Time
}

// filePatience is for how long files are waited for, which takes moments: where a file system stalls, what they held before
// has to do.
const filePatience = 2 * time.Second

// NewKeeper reads the files of a node for the first time. Material whose time is over,
// or has not come, is taken all the same: peers refuse it, and better files may come.
// For any other problem the error says that there is nothing to begin with.
func NewKeeper(files Files, node string, event func(*Material, error)) (*Keeper, error) {
	k := &Keeper{files: files, node: node, event: event}
	k.look()
	m, err := Load(Open, files)
	if err != nil {
		return nil, err
	}
	if err := m.Usable(node, time.Now()); err != nil {
		if m.Node != node {
			return nil, err
		}
		k.lastErr = err.Error()
	}
	k.current = m
	return k, nil
}

// NewPatientKeeper is NewKeeper for who must not end for want of files: what cannot be used is told to event, and until the
// files can be used the material is one without a certificate, which nobody believes and which believes nobody.
func NewPatientKeeper(files Files, node string, event func(*Material, error)) *Keeper {
	k, err := NewKeeper(files, node, event)
	if err == nil {
		return k
	}
	event(nil, err)
	// Roots: none. Without a pool it would be the system's.
	return &Keeper{files: files, node: node, event: event, lastErr: err.Error(), current: &Material{Node: node, Roots: x509.NewCertPool()}}
}

// Material returns what the files hold, or what they held when they could last be
// used, and read in time. It costs three calls of stat while nothing changes.
func (k *Keeper) Material() *Material {
	for range 2 {
		k.mu.Lock()
		own := k.looking == nil
		if own {
			k.looking, k.began = make(chan struct{}), time.Now()
			go k.refresh(k.looking)
		}
		looking, began := k.looking, k.began
		k.mu.Unlock()
		if !over(looking, began.Add(filePatience)) || own {
			break
		}
		// A look of another's may have been at what the files held before this call; the next one is not.
	}
	return k.last()
}

// over waits for a channel to be closed, and reports whether it was before the given time.
func over(done <-chan struct{}, until time.Time) bool {
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// refresh looks at the files, reads them again if need be, and closes done.
func (k *Keeper) refresh(done chan struct{}) {
	m := k.read()
	k.mu.Lock()
	defer k.mu.Unlock()
	if m != nil {
		k.current = m
	}
	k.looking = nil
	close(done)
}

// read returns what the files hold, nil if that is not new or cannot be used.
func (k *Keeper) read() *Material {
	if !k.look() {
		return nil
	}
	m, err := Load(Open, k.files)
	if err == nil {
		err = m.Usable(k.node, time.Now())
	}
	if err != nil {
		// Next time it may do, with the same files: it is valid from a moment on, or there was
		// no descriptor left.
		k.settled = false
		if k.lastErr != err.Error() {
			k.lastErr = err.Error()
			k.event(nil, err)
		}
		return nil
	}
	k.lastErr = ""
	if last := k.last(); !m.Leaf.Equal(last.Leaf) || !m.Roots.Equal(last.Roots) {
		k.event(m, nil)
	}
	return m
}

// last returns what the files held when they could last be used.
func (k *Keeper) last() *Material {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// look notes the state of the files and reports whether they are to be read again.
// It is taken before they are read: what changes in between is seen next time.
func (k *Keeper) look() bool {
	var now [3]stamp
	youngest := time.Time{}
	for i, path := range []string{k.files.Cert, k.files.Key, k.files.CA} {
		info, err := os.Stat(path)
		if err != nil {
			continue // a file that is not there is a change too
		}
		now[i] = stampOf(info)
		if c := time.Unix(now[i].change.Unix()); c.After(youngest) {
			youngest = c
		}
	}
	changed := now != k.seen || !k.settled
	k.seen, k.settled = now, time.Since(youngest) > fresh
	return changed
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode, s.modified, s.change = st.Ino, st.Mtim, st.Ctim
	}
	return s
}
