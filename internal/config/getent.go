package config

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strings"
	"sync"
	"time"
)

// getentTime bounds all questions about one configuration to the system's directories, which may be on other machines: a
// daemon that reloads does nothing else meanwhile.
const getentTime = 5 * time.Second

// knownAtOnce is how long a name that the machine itself knows may take when that time is over.
const knownAtOnce = 100 * time.Millisecond

// directories are what answers where os/user knows no such name: the system's program getent. A program without cgo
// looks at /etc/passwd and /etc/group only, and names may be served by others, such as SSSD or systemd.
type directories struct {
	// asked is when the first question is asked, from which on there is time for all.
	asked func() time.Time
}

func newDirectories() directories { return directories{sync.OnceValue(time.Now)} }

// lookUp finds the id of a user or a group: by library, which is os/user, and then by getent in the database "passwd" or
// "group".
func (d directories) lookUp(library func(name string) (id string, err error), database, name string) (uint32, error) {
	id, err, late := d.answer(library, name)
	var noUser user.UnknownUserError
	var noGroup user.UnknownGroupError
	if errors.As(err, &noUser) || errors.As(err, &noGroup) {
		var known string
		if known, late = d.getent(database, name); known != "" {
			id, err = known, nil
		}
	}
	switch {
	case late:
		return 0, fmt.Errorf("the system's directories have not answered within %v (try: getent %s %s), or write the number", getentTime, database, name)
	case err != nil:
		return 0, err
	}
	return numericID(id)
}

// answer returns what library says of a name, or that the time is up: in a program with cgo it asks the directories itself
// (getpwnam), which may take minutes when one of them does not answer. Its goroutine ends when they do.
func (d directories) answer(library func(name string) (id string, err error), name string) (id string, err error, late bool) {
	type answer struct {
		id  string
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		id, err := library(name)
		answered <- answer{id, err}
	}()
	over := time.NewTimer(max(time.Until(d.asked().Add(getentTime)), knownAtOnce))
	defer over.Stop()
	select {
	case a := <-answered:
		return a.id, a.err, false
	case <-over.C:
		return "", nil, true
	}
}

// getent returns the id of an entry, "" if there is none or nobody to ask, and whether the time is up. Names begin with no
// '-': resolveOne takes those for numbers.
func (d directories) getent(database, name string) (id string, late bool) {
	ctx, cancel := context.WithDeadline(context.Background(), d.asked().Add(getentTime))
	defer cancel()
	c := exec.CommandContext(ctx, "getent", database, name)
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		return "", ctx.Err() != nil
	}
	// passwd(5), group(5): the name, a password, the id, and more.
	line, _, _ := strings.Cut(string(out), "\n")
	fields := strings.Split(line, ":")
	if len(fields) < 3 || fields[0] != name {
		return "", false
	}
	return fields[2], false
}
