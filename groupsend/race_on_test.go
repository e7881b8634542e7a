//go:build race

package groupsend_test

const raceEnabled = true
