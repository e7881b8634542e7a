package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

//go:embed init.sh
var initScript []byte

// busybox is the only program of the guest's own.
const busybox = "/bin/busybox"

// imageVersion is to be changed with how images are built.
const imageVersion = 2

// image is a directory with a kernel and its initramfs.
type image struct{ dir string }

func (i image) kernel() string { return filepath.Join(i.dir, "kernel") }
func (i image) initrd() string { return filepath.Join(i.dir, "initrd.gz") }

// imageKey names an image by all that it is made from.
func imageKey(k kernel, script []byte, modules []module) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%s\n%s\n%d\n%s\n", imageVersion, k.pkg, k.version, len(script), script)
	for _, m := range modules {
		fmt.Fprintf(h, "%s %t\n", m.name, m.optional)
	}
	return k.release() + "-" + hex.EncodeToString(h.Sum(nil))[:16]
}

// imageCache returns the directory of all images.
func imageCache() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the guest's image: %w", err)
	}
	dir := filepath.Join(base, "rdmad-lab")
	return dir, os.MkdirAll(dir, 0o755)
}

// lockFile takes the exclusive lock on a file until the returned function is
// called. Whoever dies gives it back.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		var err error = unix.EINTR
		for err == unix.EINTR {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		locked <- err
	}()
	select {
	case err = <-locked:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { f.Close() }, nil
}

// findImage returns the image for a kernel in the cache, and whether it had to be
// built. The cache must be locked.
func findImage(ctx context.Context, cache string, k kernel) (img image, built bool, err error) {
	img = image{filepath.Join(cache, imageKey(k, initScript, modules))}
	// It was complete before it got this name.
	if _, err := os.Stat(img.dir); err == nil {
		return img, false, nil
	}
	const building = "build-"
	if left, err := filepath.Glob(filepath.Join(cache, building+"*")); err == nil {
		for _, dir := range left {
			os.RemoveAll(dir) // of a builder that was killed: nobody else has the lock
		}
	}
	dir, err := os.MkdirTemp(cache, building)
	if err != nil {
		return img, false, err
	}
	defer os.RemoveAll(dir)
	if err := buildImage(ctx, dir, k); err != nil {
		return img, false, fmt.Errorf("building the guest's image: %w", err)
	}
	return img, true, os.Rename(filepath.Join(dir, "image"), img.dir)
}

// buildImage makes dir/image.
func buildImage(ctx context.Context, dir string, k kernel) error {
	download := []string{"apt-get", "download", k.pkg + "=" + k.version}
	if os.Geteuid() == 0 {
		// apt's own user may not be able to write here.
		download = slices.Insert(download, 1, "-o", "APT::Sandbox::User=root")
	}
	if _, err := output(ctx, dir, download...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download left %d packages, expected one", len(debs))
	}
	tree := filepath.Join(dir, "tree")
	if _, err := output(ctx, "", "dpkg", "-x", debs[0], tree); err != nil {
		return err
	}
	// Newer packages have /usr/lib only.
	if err := os.Symlink("usr/lib", filepath.Join(tree, "lib")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	img := image{filepath.Join(dir, "image")}
	if err := os.Mkdir(img.dir, 0o755); err != nil {
		return err
	}
	initrd, err := buildInitrd(ctx, tree, k.release())
	if err != nil {
		return err
	}
	if err := os.WriteFile(img.initrd(), initrd, 0o644); err != nil {
		return err
	}
	return buildKernel(ctx, filepath.Join(tree, "boot", "vmlinuz-"+k.release()), img.kernel())
}

// buildKernel unpacks a kernel, or takes it as it is if it is of another kind
// than expected.
func buildKernel(ctx context.Context, from, to string) error {
	packed, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if p := payload(packed); p != nil {
		file := from + ".xz"
		if err := os.WriteFile(file, p, 0o644); err != nil {
			return err
		}
		unpacked, err := output(ctx, "", "xz", "--decompress", "--stdout", file)
		if err != nil {
			return err
		}
		if startable([]byte(unpacked)) {
			return os.WriteFile(to, []byte(unpacked), 0o644)
		}
	}
	return os.Rename(from, to)
}

// buildInitrd makes the initramfs: busybox, /init and the modules.
func buildInitrd(ctx context.Context, tree, release string) ([]byte, error) {
	box, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	a := &archive{w: z}
	for _, dir := range []string{"bin", "dev", "modules"} {
		a.dir(dir)
	}
	a.device("dev/console", 5, 1)
	a.file("bin/busybox", box, 0o755)
	a.file("init", initScript, 0o755)
	files, err := closure(ctx, tree, release)
	if err != nil {
		return nil, err
	}
	var order bytes.Buffer
	for _, file := range files {
		content, err := readModule(ctx, file)
		if err != nil {
			return nil, err
		}
		a.file("modules/"+moduleName(file), content, 0o644)
		fmt.Fprintln(&order, moduleName(file))
	}
	a.file("modules/order", order.Bytes(), 0o644)
	if err := a.close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// closure returns the files of all modules and of what they depend on.
func closure(ctx context.Context, tree, release string) ([]string, error) {
	if _, err := output(ctx, "", "depmod", "-b", tree, release); err != nil {
		return nil, err
	}
	var files []string
	for _, m := range modules {
		shown, err := output(ctx, "", "modprobe", "-d", tree, "-S", release, "--show-depends", m.name)
		if err != nil {
			if m.optional {
				continue
			}
			return nil, err
		}
		more, err := moduleFiles(shown)
		if err != nil {
			return nil, err
		}
		for _, file := range more {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}

// readModule returns a module, unpacked.
func readModule(ctx context.Context, file string) ([]byte, error) {
	if filepath.Ext(file) != ".xz" {
		return os.ReadFile(file)
	}
	unpacked, err := output(ctx, "", "xz", "--decompress", "--stdout", file)
	return []byte(unpacked), err
}
