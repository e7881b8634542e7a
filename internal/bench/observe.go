package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/bench/cputime"
)

// PIDsEnv is the environment variable in which a sandbox lists its processes, as
// role=pid separated by commas.
const PIDsEnv = "RDMAD_SANDBOX_PIDS"

// observation is the state of the daemons at one moment.
type observation struct {
	status daemonStatus
	// cpu is the processor time of each process that takes part and is no
	// worker of the run.
	cpu []processTime
	// complete: they are all that take part.
	complete bool
}

// daemonStatus is the part of the local daemon's status that a run needs.
type daemonStatus struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	Fabric  string `json:"fabric"`
	PIDs    struct {
		Supervisor int `json:"supervisor"`
		Core       int `json:"core"`
	} `json:"pids"`
	Counters map[string]uint64 `json:"counters"`
	Lanes    []laneStatus      `json:"lanes"`
}

// laneStatus is the part of a lane's status that a run needs.
type laneStatus struct {
	Direction    string `json:"direction"`
	Answers      uint64 `json:"answers"`
	AnswerGroups uint64 `json:"answer_groups"`
}

// processTime is the processor time that a process has used so far.
type processTime struct {
	role string
	pid  int
	used time.Duration
}

// is reports whether both are of the same process.
func (p processTime) is(o processTime) bool { return p.pid == o.pid && p.role == o.role }

// look observes the daemons.
func (r *run) look(ctx context.Context) (*observation, error) {
	raw, err := r.ask(ctx)
	if err != nil {
		return nil, err
	}
	o := new(observation)
	if err := json.Unmarshal(raw, &o.status); err != nil {
		return nil, fmt.Errorf("status of the daemon: %w", err)
	}
	procs, err := parsePIDs(os.Getenv(PIDsEnv))
	if err != nil {
		return nil, err
	}
	o.complete = len(procs) > 0
	for role, pid := range map[string]int{"supervisor": o.status.PIDs.Supervisor, "core": o.status.PIDs.Core} {
		known := slices.ContainsFunc(procs, func(p processTime) bool { return p.pid == pid })
		if pid > 0 && !known {
			procs = append(procs, processTime{role: o.status.Node + "." + role, pid: pid})
		}
	}
	for _, p := range procs {
		// A process that is gone, or is another user's business, is left out.
		if p.used, err = cputime.Of(p.pid); err == nil {
			o.cpu = append(o.cpu, p)
		} else {
			o.complete = false
		}
	}
	slices.SortStableFunc(o.cpu, func(a, b processTime) int { return strings.Compare(a.role, b.role) })
	return o, nil
}

// ask asks the daemon for its status, and gives up on one that does not answer, such as one that hangs.
func (r *run) ask(ctx context.Context) (json.RawMessage, error) {
	ctx, cancel := within(ctx, stallLimit, "asking the daemon for its status")
	defer cancel()
	raw, err := r.status(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // which says what took too long
	}
	return raw, err
}

// parsePIDs reads the value of PIDsEnv.
func parsePIDs(list string) ([]processTime, error) {
	var procs []processTime
	if list == "" {
		return nil, nil
	}
	for _, entry := range strings.Split(list, ",") {
		role, number, _ := strings.Cut(entry, "=")
		pid, err := strconv.Atoi(number)
		if err != nil || pid < 1 || role == "" {
			return nil, fmt.Errorf("%s: %q is not role=pid", PIDsEnv, entry)
		}
		procs = append(procs, processTime{role: role, pid: pid})
	}
	return procs, nil
}
