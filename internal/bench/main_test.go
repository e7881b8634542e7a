package bench

import (
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

func TestMain(m *testing.M) { daemontest.Main(m) }
