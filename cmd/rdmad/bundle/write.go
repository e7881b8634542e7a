package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// WriteTo writes a bundle as a tar archive, compressed: a directory of the given name with
// the MANIFEST and the parts, in their order. The same parts at the same time are the same
// bytes.
func WriteTo(out io.Writer, name, title string, at time.Time, had []Had) error {
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	at = at.Truncate(time.Second)
	add := func(file string, content []byte) error {
		err := t.WriteHeader(&tar.Header{Name: name + "/" + file, Mode: 0o600, Size: int64(len(content)), ModTime: at, Format: tar.FormatPAX})
		if err == nil {
			_, err = t.Write(content)
		}
		return err
	}
	if err := add("MANIFEST", manifest(title, at, had)); err != nil {
		return err
	}
	for i := range had {
		if h := &had[i]; h.Content != nil {
			if err := add(h.Name, h.Content); err != nil {
				return err
			}
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// WriteFile makes a file, for its owner only, of what write writes. It is there as a whole
// or not at all: it is written under another name first. A file of that name is replaced;
// what is none is refused.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	switch info, err := os.Lstat(path); {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is there and not a regular file", path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".rdmad-support-*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	// At once, so that a file that is full fails here and not in the middle of a line.
	var whole bytes.Buffer
	if err := write(&whole); err != nil {
		return err
	}
	if _, err := f.Write(whole.Bytes()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
