package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestPackageVersion(t *testing.T) {
	for _, c := range []struct{ describe, want string }{
		{"v1.2.3-0-gabcdef0", "1.2.3"},
		{"v1.2.3-0-gabcdef0-dirty", "1.2.3+dirty"},
		{"v1.2.3-14-gabcdef0", "1.2.3+14.gabcdef0"},
		{"v1.2.3-14-gabcdef0-dirty", "1.2.3+14.gabcdef0.dirty"},
		{"v2.0.0-rc1-0-gabcdef0", "2.0.0~rc1"},
		{"v2.0.0-rc1-3-gabcdef0", "2.0.0~rc1+3.gabcdef0"},
		{"6430b77", "0.1.0~~25.g6430b77"},
		{"6430b77-dirty", "0.1.0~~25.g6430b77.dirty"},
		{"release-of-today", ""},
		{"", ""},
	} {
		got, err := packageVersion(c.describe, "0.1.0", 25)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v, want %q", c.describe, got, err, c.want)
		}
	}
}

// The order is that of time, for dpkg and rpm where they are installed.
func TestVersionsAreOrdered(t *testing.T) {
	_, noDpkg := exec.LookPath("dpkg")
	_, noRPM := exec.LookPath("rpm")
	if noDpkg != nil && noRPM != nil {
		t.Skip("neither dpkg nor rpm is installed, which tell the order of versions: apt-get install rpm")
	}
	var versions []string
	for _, d := range []struct {
		describe string
		commits  int
	}{
		{"ffff", 25}, {"ffff-dirty", 25}, {"aaaa", 100}, {"v0.1.0-rc1-0-gaaaa", 120}, {"v0.1.0-rc1-2-gaaaa", 122}, {"v0.1.0-0-gaaaa", 130}, {"v0.1.0-1-gaaaa", 131},
		{"v1.0.0-rc1-0-gaaaa", 200}, {"v1.0.0-rc1-2-gaaaa", 202}, {"v1.0.0-0-gaaaa", 203}, {"v1.0.0-9-gffff", 212}, {"v1.0.0-10-gaaaa", 213}, {"v1.0.1-0-gaaaa", 214},
	} {
		v, err := packageVersion(d.describe, "0.1.0", d.commits)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, v)
	}
	for i, v := range versions[1:] {
		before := versions[i]
		if noDpkg == nil {
			if err := exec.Command("dpkg", "--compare-versions", before+"-1", "lt", v+"-1").Run(); err != nil {
				t.Errorf("%s is not before %s: dpkg: %v", before, v, err)
			}
		}
		if noRPM == nil {
			if out, err := exec.Command("rpm", "--eval", "%{lua: print(rpm.vercmp('"+before+"', '"+v+"'))}").Output(); err != nil || strings.TrimSpace(string(out)) != "-1" {
				t.Errorf("%s is not before %s: rpm: %s%v", before, v, out, err)
			}
		}
	}
}

// What no package manager would install is not built.
func TestVersionAskedFor(t *testing.T) {
	for version, ok := range map[string]bool{"": true, "1.2.3": true, "0.1.0~~25.gabc.dirty": true, "1.0~rc1+dirty": true, "foo": false, "v1.0": false, "1.0-1": false, "1:2": false, "1 2": false, "~1": false} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
}
