package node

import (
	"fmt"
	"os"

	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/version"
)

// The supervisor starts the program as its core with handoff.CoreCommand as the first argument,
// programArgs as the second, and then those of the program, so that main can parse them there, too.
const programArgs = "--"

// inCore: this process was started to be the core. Its arguments are the program's by the time
// that anything else of the program looks at them.
var inCore = started()

// started looks at what the process was started for. If it is only asked for its versions it says
// them and ends, whatever main would do before it comes to Run.
func started() bool {
	core, probe := takeArguments()
	if probe {
		if err := version.Probe(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	return core
}

// takeArguments takes the supervisor's arguments away from those of the program.
func takeArguments() (core, probe bool) {
	if len(os.Args) < 3 || os.Args[1] != handoff.CoreCommand {
		return false, false
	}
	switch os.Args[2] {
	case programArgs:
		os.Args = append(os.Args[:1:1], os.Args[3:]...)
		return true, false
	case "--" + handoff.ProbeFlag:
		return false, len(os.Args) == 3
	}
	return false, false
}
