//go:build !race

package slotmodel

const raceEnabled = false
