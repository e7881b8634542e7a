package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

const (
	maintainer = "The rdmad authors <rdmad@users.noreply.github.com>"
	homepage   = "https://github.com/rdmad/rdmad"
	// release counts packages of the same version.
	release = "1"
	summary = "share a node's RDMA queue pairs among processes"
)

// description is that of the packages, with what a variant has. dpkg takes its first
// line for the summary, which an rpm has elsewhere.
func description(v variant, format string) string {
	fabric := "This package moves data between nodes over TCP. Install rdmad-rdma in its\nplace for RDMA devices."
	if v.rdma {
		fabric = "This package can move data between nodes over RDMA devices, and over TCP."
	}
	first := ""
	if format == "deb" {
		first = summary + "\n"
	}
	return first + "A daemon, one per node, that owns the RDMA queue pairs. Worker processes\n" +
		"attach to it by a Unix socket and share rings of message slots with it: they\n" +
		"need no device, no privileges and no RDMA libraries.\n\n" + fabric
}

// info describes one package to nfpm.
func (s *source) info(v variant, format string) (*nfpm.Info, error) {
	contents, err := s.contents(v, format)
	if err != nil {
		return nil, err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: v.name, Arch: s.arch, Platform: "linux", Version: s.version, VersionSchema: "none", Release: release,
		Section: "net", Priority: "optional", Maintainer: maintainer, Vendor: "rdmad", Homepage: homepage,
		Description: description(v, format), License: "Apache-2.0", MTime: s.time, DisableGlobbing: true,
	})
	info.Contents = contents
	// The mode of everything is given, so nothing is left to the umask.
	info.Scripts = nfpm.Scripts{
		PostInstall: filepath.Join(s.staged, "files/postinst"),
		PreRemove:   filepath.Join(s.staged, "files/prerm"),
		PostRemove:  filepath.Join(s.staged, "files/postrm"),
	}
	info.RPM.BuildHost, info.RPM.Group, info.RPM.Summary = "localhost", "System Environment/Daemons", summary
	info.RPM.Packager = maintainer
	other := variants[0].name
	if !v.rdma {
		other = variants[1].name
	}
	info.Conflicts, info.Replaces = []string{other}, []string{other}
	if v.rdma {
		version := s.version + "-" + release
		if format == "deb" {
			info.Provides = []string{"rdmad (= " + version + ")"}
		} else {
			info.Provides = []string{"rdmad = " + version}
		}
	}
	if format == "rpm" {
		// What Replaces means to dpkg: without it an rpm that obsoletes the other would
		// take its place at the next update.
		info.Replaces = nil
	}
	info.Depends, err = s.depends(v, format)
	return info, err
}

// depends are the packages that one needs. A static program needs none.
func (s *source) depends(v variant, format string) ([]string, error) {
	var needs []string
	if format == "deb" {
		// useradd and groupadd, where there is no systemd-sysusers.
		needs = []string{"passwd"}
	} else {
		needs = []string{"/usr/sbin/useradd", "/usr/sbin/groupadd"}
	}
	if !v.rdma {
		return needs, nil
	}
	libc, err := libcVersion(filepath.Join(s.staged, v.name))
	if err != nil {
		return nil, err
	}
	if format == "deb" {
		return append(needs, "libc6 (>= "+libc+")", "libibverbs1", "librdmacm1", "ibverbs-providers"), nil
	}
	return append(needs, "libc.so.6(GLIBC_"+libc+")(64bit)", "libibverbs.so.1()(64bit)", "librdmacm.so.1()(64bit)"), nil
}

// contents are the files of a package.
func (s *source) contents(v variant, format string) (files.Contents, error) {
	var list files.Contents
	add := func(from, to string, mode os.FileMode, kind string) {
		list = append(list, &files.Content{Source: from, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: s.time}})
	}
	staged := func(name string) string { return filepath.Join(s.staged, name) }
	add(staged(v.name), "/usr/bin/rdmad", 0o755, "")
	add("", "/etc/rdmad", 0o755, files.TypeDir)
	add(staged("config.toml"), "/etc/rdmad/config.toml", 0o644, files.TypeConfigNoReplace)
	add(staged("files/rdmad.sysusers"), "/usr/lib/sysusers.d/rdmad.conf", 0o644, "")
	add(staged("files/rdmad.tmpfiles"), "/usr/lib/tmpfiles.d/rdmad.conf", 0o644, "")
	docs := "/usr/share/doc/" + v.name
	if v.rdma {
		add(staged("files/40-rdmad.rules"), "/usr/lib/udev/rules.d/40-rdmad.rules", 0o644, "")
		add(staged("files/90-rdmad-only.rules"), docs+"/examples/90-rdmad-only.rules", 0o644, "")
	}
	add(staged("completions/rdmad.bash"), "/usr/share/bash-completion/completions/rdmad", 0o644, "")
	zsh := "/usr/share/zsh/vendor-completions/_rdmad"
	if format == "rpm" {
		zsh = "/usr/share/zsh/site-functions/_rdmad"
	}
	add(staged("completions/_rdmad"), zsh, 0o644, "")
	add(staged("completions/rdmad.fish"), "/usr/share/fish/vendor_completions.d/rdmad.fish", 0o644, "")
	for _, section := range []string{"man1", "man5"} {
		pages, err := filepath.Glob(staged(section + "/*.gz"))
		if err != nil {
			return nil, err
		}
		for _, page := range pages {
			add(page, "/usr/share/man/"+section+"/"+filepath.Base(page), 0o644, "")
		}
	}
	add(staged("changelog.gz"), docs+"/changelog.gz", 0o644, "")
	if format == "deb" {
		add(staged("files/copyright"), docs+"/copyright", 0o644, "")
		add(staged("changelog.Debian."+v.name+".gz"), docs+"/changelog.Debian.gz", 0o644, "")
	} else {
		add(filepath.Join(s.repository, "LICENSE"), "/usr/share/licenses/"+v.name+"/LICENSE", 0o644, files.TypeRPMLicense)
	}
	units, err := s.units(docs)
	if err != nil {
		return nil, err
	}
	for _, u := range units {
		add(u.from, u.to, 0o644, "")
	}
	return list, nil
}

// unit is a file of systemd and where it goes.
type unit struct{ from, to string }

// units returns what there is for systemd: units and drop-ins that are always in force go
// where systemd looks, and drop-ins to choose from to the examples.
func (s *source) units(docs string) ([]unit, error) {
	root := filepath.Join(s.repository, systemd)
	var found []unit
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{".service", ".socket"}, filepath.Ext(name)) && !strings.Contains(name, "/"):
			found = append(found, unit{path, "/usr/lib/systemd/system/" + name})
		case filepath.Ext(name) == ".conf":
			found = append(found, unit{path, docs + "/examples/" + name})
		}
		return nil
	})
	// The user that the package makes; units that are installed by hand have none.
	for _, of := range []string{"service", "socket"} {
		found = append(found, unit{filepath.Join(s.staged, "files/user."+of), "/usr/lib/systemd/system/rdmad." + of + ".d/10-user.conf"})
	}
	return found, err
}
