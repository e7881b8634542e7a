package event

import (
	"fmt"
	"strings"

	"github.com/rs/zerolog"
)

// parts are the parts of the table with their titles.
var parts = []struct {
	title string
	table []Info
}{
	{"Processes, configuration and service manager", processEvents},
	{"Workers", workerEvents},
	{"Peers and certificates", peerEvents},
	{"Lanes and regions", laneEvents},
	{"The machine", hostEvents},
	{"Counters and other ways to look at the daemon", observeEvents},
}

// Runbook returns the entries of docs/runbook.md: every event with its meaning, cause and
// action.
func Runbook() string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "## %s\n\n", p.title)
		for _, i := range p.table {
			level := "error"
			if i.Level == zerolog.WarnLevel {
				level = "warning"
			}
			fmt.Fprintf(&b, "### %s\n\n- **Meaning** (%s): %s\n- **Cause**: %s\n- **Action**: %s\n", i.Code, level, i.Meaning, i.Cause, i.Action)
			if why, not := strings.CutPrefix(i.Shown, "not: "); not {
				fmt.Fprintf(&b, "- Provoked by no test: %s.\n\n", why)
			} else {
				fmt.Fprintf(&b, "- Provoked by `%s`.\n\n", i.Shown)
			}
		}
	}
	return b.String()
}
