//go:build faultpoints

package fault

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// limit is how long anything that must happen may take.
const limit = 3 * time.Minute

func TestMain(m *testing.M) {
	daemontest.Helper("victim", runVictim)
	daemontest.Helper("servant", runServant)
	daemontest.Helper("offender", runOffender)
	daemontest.Main(m)
}
