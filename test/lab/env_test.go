package main

import (
	"slices"
	"testing"
)

func TestGuestEnvironment(t *testing.T) {
	host := []string{
		"PATH=/bin", "LANG=C", "GOTRACEBACK=all", "RDMAD_SOCKET=/run/s", "RDMAD_LAB=secret@x", "RDMAD_LAB_GUEST=no",
		"HOME=/elsewhere", "SSH_AUTH_SOCK=/s", "PATHS=no", "PWD=/old", "odd",
	}
	got := guestEnvironment(host, []string{"LANG=D", "EXTRA=a=b"}, "/here")
	slices.Sort(got)
	want := []string{
		"EXTRA=a=b", "GOTRACEBACK=all", "HOME=/tmp", "LANG=D", "PATH=/bin", "PWD=/here", "RDMAD_LAB_GUEST=1",
		"RDMAD_SOCKET=/run/s", "TMPDIR=/tmp", "USER=root",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestLookupEnv(t *testing.T) {
	env := []string{"A=1", "AB=2", "A=3"}
	for name, want := range map[string]string{"A": "3", "AB": "2", "B": ""} {
		if got := lookupEnv(env, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
