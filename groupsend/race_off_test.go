//go:build !race

package groupsend_test

const raceEnabled = false
