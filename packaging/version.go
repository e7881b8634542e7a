package main

import (
	"fmt"
	"regexp"
	"strings"
)

// described is what "git describe --tags --long --always --dirty" prints behind a tag:
// the tag, the commits since, the commit, and whether there are changes.
var described = regexp.MustCompile(`^v?(\d+(?:\.\d+)*(?:-[0-9A-Za-z.]+)?)-(\d+)-g([0-9a-f]+)(-dirty)?$`)

// packageVersion makes a version that dpkg and rpm order as time does of what git
// describe says. An rc1 comes before its release, a commit after the tag it follows. Without
// a tag the program's own version is yet to come, and its candidates are: two tildes and the
// number of commits come before both.
func packageVersion(describe, own string, commits int) (string, error) {
	if m := described.FindStringSubmatch(describe); m != nil {
		v := strings.Replace(m[1], "-", "~", 1)
		if m[2] != "0" {
			v += "+" + m[2] + ".g" + m[3]
		}
		return v + dirt(v, m[4]), nil
	}
	commit, dirty := strings.CutSuffix(describe, "-dirty")
	if !regexp.MustCompile(`^[0-9a-f]{4,40}$`).MatchString(commit) {
		return "", fmt.Errorf("git describe printed %q, want TAG-N-gCOMMIT with a tag such as v1.2.3, or a commit", describe)
	}
	v := fmt.Sprintf("%s~~%d.g%s", own, commits, commit)
	if dirty {
		v += ".dirty"
	}
	return v, nil
}

// installable is what dpkg and rpm both take for a version: rpm has no hyphen in one, and dpkg no other first character than a digit.
var installable = regexp.MustCompile(`^[0-9][0-9A-Za-z.+~]*$`)

// checkVersion refuses a version that was asked for and with which no package can be installed. None is git's.
func checkVersion(version string) error {
	if version == "" || installable.MatchString(version) {
		return nil
	}
	return fmt.Errorf("-version %q: want a digit, and then digits, letters, dots, plus signs and tildes, such as 1.2.3~rc1", version)
}

// dirt is the suffix for changes that no commit has.
func dirt(version, dirty string) string {
	switch {
	case dirty == "":
		return ""
	case strings.Contains(version, "+"):
		return ".dirty"
	}
	return "+dirty"
}
