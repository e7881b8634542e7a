package perf

import (
	"testing"

	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
