package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// openOwn opens a file beside node.socket that is written to, or makes it. It does not wait, and refuses what is none
// or also has another name: it is somebody else's.
func openOwn(path string, perm os.FileMode) (*os.File, error) {
	return checkOwn(os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, perm))
}

// readOwn returns what is in such a file.
func readOwn(path string) (string, error) {
	f, err := checkOwn(os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64))
	return string(text), err
}

func checkOwn(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	var there unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &there); err == nil && (there.Mode&unix.S_IFMT != unix.S_IFREG || there.Nlink > 1) {
		err = fmt.Errorf("%s is no file, or has another name, too, and so is not written to: move it away, or choose another node.socket", f.Name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
