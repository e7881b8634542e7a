package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// options are what to build.
type options struct {
	// repository is the repository's directory, and out where packages go.
	repository, out string
	// version is the packages' version. Empty: from git describe.
	version string
	// revision is the commit. Empty: git's.
	revision string
	// arch is a GOARCH. Empty: this machine's.
	arch string
	// only is the name of the one package to build. Empty: all.
	only string
	// say tells the user what was built, and what was not.
	say func(string)
}

// formats are the package formats.
var formats = []string{"deb", "rpm"}

// variant is a build of the program, and the name of its packages.
type variant struct {
	name string
	rdma bool
}

var variants = []variant{{"rdmad", false}, {"rdmad-rdma", true}}

// source is what a package is made of, and what identifies it.
type source struct {
	options
	// time is the time that everything in the packages has.
	time time.Time
	// staged is a directory for what is built.
	staged string
}

// build builds the packages and returns their paths, with one of the checksums.
func build(ctx context.Context, o options) ([]string, error) {
	s, err := identify(ctx, o)
	if err != nil {
		return nil, err
	}
	if s.staged, err = os.MkdirTemp("", "rdmad-packages-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(s.staged)
	if err := s.stage(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, err
	}
	var made []string
	for _, v := range variants {
		if o.only != "" && o.only != v.name {
			continue
		}
		if why := s.cannot(ctx, v); why != "" {
			o.say(fmt.Sprintf("%s is not built: %s", v.name, why))
			continue
		}
		if err := s.program(ctx, v); err != nil {
			return nil, err
		}
		for _, format := range formats {
			file, err := s.pack(v, format)
			if err != nil {
				return nil, fmt.Errorf("%s as %s: %w", v.name, format, err)
			}
			o.say(file)
			made = append(made, file)
		}
	}
	if len(made) == 0 {
		return nil, errors.New("no package was built")
	}
	return append(made, filepath.Join(o.out, "SHA256SUMS")), sums(o.out)
}

// identify finds out what version this is, and when it was made: SOURCE_DATE_EPOCH, or
// else the time of the commit.
func identify(ctx context.Context, o options) (*source, error) {
	o.arch = cmp.Or(o.arch, runtime.GOARCH)
	s := &source{options: o}
	git := func(args ...string) (string, error) {
		return output(ctx, o.repository, nil, append([]string{"git"}, args...)...)
	}
	var err error
	if s.revision == "" {
		if s.revision, err = git("rev-parse", "HEAD"); err != nil {
			return nil, err
		}
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		if epoch, err = git("log", "-1", "--format=%ct"); err != nil {
			return nil, err
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH %q: want seconds since 1970", epoch)
	}
	s.time = time.Unix(seconds, 0).UTC()
	if s.version != "" {
		return s, nil
	}
	// Without a tag it prints the commit alone, and --long would be in vain.
	describe, err := git("describe", "--tags", "--long", "--dirty", "--always", "--match", "v[0-9]*")
	if err != nil {
		return nil, err
	}
	count, err := git("rev-list", "--count", "HEAD")
	if err != nil {
		return nil, err
	}
	commits, err := strconv.Atoi(count)
	if err != nil {
		return nil, fmt.Errorf("git rev-list --count HEAD: %w", err)
	}
	own, err := ownVersion(o.repository)
	if err != nil {
		return nil, err
	}
	s.version, err = packageVersion(describe, own, commits)
	return s, err
}

// ownVersion reads the program's version in the source.
func ownVersion(repository string) (string, error) {
	text, err := os.ReadFile(filepath.Join(repository, "internal/version/version.go"))
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(text), "\nvar Version = \"")
	own, _, closed := strings.Cut(rest, "\"\n")
	if !found || !closed {
		return "", errors.New("internal/version/version.go does not have a line like: var Version = \"1.2.3\"")
	}
	return own, nil
}

// cannot says why a variant cannot be built here, or nothing.
func (s *source) cannot(ctx context.Context, v variant) string {
	switch {
	case !v.rdma:
		return ""
	case s.arch != runtime.GOARCH:
		return "RDMA needs cgo, which does not build for " + s.arch + " here"
	}
	if _, err := output(ctx, s.repository, nil, "pkg-config", "--exists", "libibverbs", "librdmacm"); err != nil {
		return "install pkg-config, libibverbs-dev and librdmacm-dev for it"
	}
	return ""
}

// program builds the program of a variant: the same bytes from the same source.
func (s *source) program(ctx context.Context, v variant) error {
	const pkg = "github.com/rdmad/rdmad/internal/version."
	flags := fmt.Sprintf("-s -w -X %sVersion=%s -X %srevision=%s", pkg, s.version, pkg, s.revision)
	args := []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", filepath.Join(s.staged, v.name)}
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + s.arch}
	if v.rdma {
		args, env[0] = append(args, "-tags", "verbs"), "CGO_ENABLED=1"
	}
	_, err := output(ctx, s.repository, env, append(args, "./cmd/rdmad")...)
	return err
}

// pack writes one package.
func (s *source) pack(v variant, format string) (string, error) {
	info, err := s.info(v, format)
	if err != nil {
		return "", err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.out, packager.ConventionalFileName(info))
	out, err := os.Create(file + ".part")
	if err != nil {
		return "", err
	}
	defer os.Remove(out.Name())
	if err := errors.Join(packager.Package(info, out), out.Close()); err != nil {
		return "", err
	}
	return file, os.Rename(out.Name(), file)
}

// sums writes the checksums of all packages in a directory, also those that were built
// before for another architecture, as sha256sum -c reads them.
func sums(dir string) error {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		if !slices.Contains(formats, strings.TrimPrefix(filepath.Ext(e.Name()), ".")) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(text.String()), 0o644)
}

// output runs a command in a directory, with additional environment, and returns what
// it printed, without the last newline. Its error has what the command complained of.
func output(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}
