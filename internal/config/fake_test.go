package config

import (
	"os/user"
	"testing"
)

// fakeSystem is a machine with two users and two groups, run as user 1000.
func fakeSystem() system {
	users := map[string]uint32{"alice": 1001, "bob": 1002}
	groups := map[string]uint32{"dba": 2001, "web": 2002}
	return system{
		hostname: "Host-1.example.org",
		uid:      1000,
		user: func(name string) (uint32, error) {
			if id, ok := users[name]; ok {
				return id, nil
			}
			return 0, user.UnknownUserError(name)
		},
		group: func(name string) (uint32, error) {
			if id, ok := groups[name]; ok {
				return id, nil
			}
			return 0, user.UnknownGroupError(name)
		},
	}
}

// mustParse parses a good document on the fake machine.
func mustParse(t *testing.T, doc string) *Config {
	t.Helper()
	c, errs := parse("test.toml", []byte(doc), fakeSystem())
	if len(errs) > 0 {
		t.Fatalf("refused:\n%v", errs)
	}
	return c
}
