// Package browser has no code, only tests: of the daemon's web page, in headless
// Chromium, with real daemons under load. It is a module of its own, so that nothing
// that drives browsers is a dependency of rdmad.
//
// Chromium is installed by the tests if it is missing and they may: as root on Debian.
// Otherwise they are skipped and say how to get it. The flag -rdmad.browser names another
// browser of that family, and -rdmad.screenshots a directory that keeps what the tests
// have seen. See docs/webpage.md.
package browser
