package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// own are the files that only packages need.
//
//go:embed files
var own embed.FS

// systemd is where the units are, which are for other ways to install, too.
const systemd = "deploy/systemd"

// stage makes what both variants have beside the program: pages, completions, the
// configuration, and changelogs.
func (s *source) stage(ctx context.Context) error {
	tool := filepath.Join(s.staged, "docs-tool")
	host := []string{"CGO_ENABLED=0", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", s.time.Unix())}
	flags := "-X github.com/rdmad/rdmad/internal/version.Version=" + s.version
	if _, err := output(ctx, s.repository, host, "go", "build", "-tags", "docs", "-pgo=off", "-buildvcs=false", "-ldflags", flags, "-o", tool, "./cmd/rdmad"); err != nil {
		return err
	}
	if _, err := output(ctx, s.repository, host, tool, "docs", s.staged); err != nil {
		return err
	}
	example, err := output(ctx, s.repository, host, tool, "config", "example")
	if err != nil {
		return err
	}
	config, err := packagedConfig(example + "\n")
	if err != nil {
		return err
	}
	news, err := os.ReadFile(filepath.Join(s.repository, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"config.toml": config, "changelog": string(news), "changelog.Debian.rdmad": s.debianChangelog("rdmad"),
		"changelog.Debian.rdmad-rdma": s.debianChangelog("rdmad-rdma")} {
		if err := os.WriteFile(filepath.Join(s.staged, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.CopyFS(s.staged, own); err != nil {
		return err
	}
	return s.compress("man1/*", "man5/*", "changelog", "changelog.Debian.*")
}

// packagedConfig is the example with one difference: in a package the daemon has a user
// of its own, so the members of its group may attach, and root.
func packagedConfig(example string) (string, error) {
	for _, change := range [][2]string{{"\nusers = []\n", "\nusers = [\"root\"]\n"}, {"\ngroups = []\n", "\ngroups = [\"rdmad\"]\n"}} {
		if n := strings.Count(example, change[0]); n != 1 {
			return "", fmt.Errorf("the example configuration has %d lines %q, want one, in [[domain]]", n, strings.TrimSpace(change[0]))
		}
		example = strings.Replace(example, change[0], change[1], 1)
	}
	return example, nil
}

// debianChangelog is the changelog of the packaging: this build.
func (s *source) debianChangelog(name string) string {
	return fmt.Sprintf("%s (%s-%s) unstable; urgency=medium\n\n  * Built from revision %s.\n    What has changed is in changelog.gz.\n\n -- %s  %s\n",
		name, s.version, release, s.revision, maintainer, s.time.Format(time.RFC1123Z))
}

// compress replaces files by compressed ones, the same bytes each time.
func (s *source) compress(patterns ...string) error {
	for _, p := range patterns {
		names, err := filepath.Glob(filepath.Join(s.staged, p))
		if err != nil {
			return err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			// BestCompression is a level that exists, and a buffer takes everything.
			z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
			_, _ = z.Write(text)
			_ = z.Close()
			if err := os.WriteFile(name+".gz", b.Bytes(), 0o644); err != nil {
				return err
			}
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
