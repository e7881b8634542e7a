package config

import (
	"context"
	"errors"
	"os/exec"
	"os/user"
	"strings"
	"time"
)

// getentTime bounds one question to the system's directories, which may be on other machines.
const getentTime = 10 * time.Second

// lookUp finds the id of a user or a group: by library, which is os/user, and where that knows no such name by the system's
// program getent, in the database "passwd" or "group". A program without cgo looks at /etc/passwd and /etc/group only, and
// names may be served by others, such as SSSD or systemd.
func lookUp(library func(name string) (id string, err error), database, name string) (uint32, error) {
	id, err := library(name)
	var noUser user.UnknownUserError
	var noGroup user.UnknownGroupError
	if errors.As(err, &noUser) || errors.As(err, &noGroup) {
		if known := getent(database, name); known != "" {
			id, err = known, nil
		}
	}
	if err != nil {
		return 0, err
	}
	return numericID(id)
}

// getent returns the id of an entry, "" if there is none or nobody to ask. Names begin with no '-': resolveOne takes
// those for numbers.
func getent(database, name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), getentTime)
	defer cancel()
	c := exec.CommandContext(ctx, "getent", database, name)
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		return ""
	}
	// passwd(5), group(5): the name, a password, the id, and more.
	line, _, _ := strings.Cut(string(out), "\n")
	fields := strings.Split(line, ":")
	if len(fields) < 3 || fields[0] != name {
		return ""
	}
	return fields[2]
}
