package main

import (
	"os/exec"
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
		{"6430b77", "0.1.0+25.g6430b77"},
		{"6430b77-dirty", "0.1.0+25.g6430b77.dirty"},
		{"release-of-today", ""},
		{"", ""},
	} {
		got, err := packageVersion(c.describe, "0.1.0", 25)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v, want %q", c.describe, got, err, c.want)
		}
	}
}

// The order is that of time, for dpkg where it is installed.
func TestVersionsAreOrdered(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not installed, which would tell the order of versions")
	}
	var versions []string
	for _, d := range []string{"6430b77", "v1.0.0-rc1-0-gaaaa", "v1.0.0-rc1-2-gaaaa", "v1.0.0-0-gaaaa", "v1.0.0-9-gffff", "v1.0.0-10-gaaaa", "v1.0.1-0-gaaaa"} {
		v, err := packageVersion(d, "0.1.0", 25)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, v+"-1")
	}
	for i := range versions[1:] {
		if err := exec.Command("dpkg", "--compare-versions", versions[i], "lt", versions[i+1]).Run(); err != nil {
			t.Errorf("%s is not before %s: %v", versions[i], versions[i+1], err)
		}
	}
}
