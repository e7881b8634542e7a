//go:build race

package slots_test

const raceEnabled = true
