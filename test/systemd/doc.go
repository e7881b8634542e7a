// Package systemd has the tests of the units in deploy/systemd: by what systemd says of
// them, and by running them under a systemd that is the first process of namespaces of its
// own. They are skipped where there is no systemd, or nobody who may make namespaces.
package systemd
