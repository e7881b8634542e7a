package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

// The most changes, problems and bytes of a problem that are told, and the most bytes of each list as JSON: all must
// fit a message of the depot together.
const (
	maxChanges  = 64
	maxProblems = 32
	maxProblem  = 400
	maxTold     = depot.MaxMeta / 6
)

// reload reads the configuration again and puts in force what can be, or nothing if there
// is any problem. It is told to the service manager, too.
func (s *supervisor) reload() {
	if s.core.known {
		s.backup.Tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d\nSTATUS=Reloading", shm.Nanotime()/1000))
		defer func() { s.backup.Tell("READY=1\nSTATUS=Node " + s.cfg.Node.Name + " serves " + s.cfg.Node.Socket) }()
	}
	r := &status.Reload{Number: 1, At: time.Now().UTC(), Applied: []config.Change{}, Pending: []config.Change{}}
	if s.reloaded != nil {
		r.Number += s.reloaded.Number
	}
	next, changes, err := s.wanted()
	if err != nil {
		r.Result, r.Digest, r.Problems = status.ReloadRefused, s.cfg.Digest(), problems(err)
		if s.reloaded != nil {
			r.Pending = s.reloaded.Pending
		}
		event.ReloadRefused.On(&s.log).Err(err).Msg("the configuration was not reloaded; the old one stays in force")
	} else {
		s.cfg, s.applied = next, true
		r.Result, r.Digest = status.ReloadDone, next.Digest()
		enter(r, changes)
		s.setup.Log.SetLevel(nodelog.Level(next))
		s.log.Info().Str("digest", r.Digest).Int("applied", len(r.Applied)).Int("pending", len(r.Pending)).Msg("the configuration was reloaded")
		if len(r.Pending) > 0 {
			event.ReloadPending.On(&s.log).Strs("keys", paths(r.Pending)).Msg("these keys have changed and count after a restart")
		}
	}
	s.reloaded = r
	s.tell()
}

// wanted reads the configuration again and returns what is to be in force.
func (s *supervisor) wanted() (*config.Config, []config.Change, error) {
	if s.setup.Reload == nil {
		return nil, nil, errors.New("this daemon was not started from a file")
	}
	cfg, err := s.setup.Reload()
	if err != nil {
		return nil, nil, err
	}
	return config.Merge(s.cfg, cfg)
}

// enter sorts the changes into what r says is applied and what is not.
func enter(r *status.Reload, changes []config.Change) {
	applied, pending := 0, 0
	for _, c := range changes {
		list, told := &r.Pending, &pending
		if c.Live {
			list, told = &r.Applied, &applied
		}
		c.Old, c.New = short(c.Old), short(c.New)
		if *told += sizeOf(c); len(*list) >= maxChanges || *told > maxTold {
			r.More++
			continue
		}
		*list = append(*list, c)
	}
}

// sizeOf is how many bytes a value has as JSON.
func sizeOf(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return maxTold + 1
	}
	return len(data)
}

// short returns a value, or of a long one how it begins.
func short(v any) any {
	data, err := json.Marshal(v)
	if err != nil || len(data) <= maxProblem {
		return v
	}
	return printable.Limited(string(data), maxProblem) + "..."
}

// paths returns the paths of changes.
func paths(changes []config.Change) []string {
	list := make([]string, len(changes))
	for i, c := range changes {
		list[i] = c.Path
	}
	return list
}

// problems returns the lines of an error, not too many and not too long.
func problems(err error) []string {
	lines := strings.Split(err.Error(), "\n")
	lines = lines[:min(len(lines), maxProblems)]
	told := 0
	for i := range lines {
		lines[i] = printable.Limited(lines[i], maxProblem)
		if told += sizeOf(lines[i]); told > maxTold {
			return lines[:i]
		}
	}
	return lines
}
