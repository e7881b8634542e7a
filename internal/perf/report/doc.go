// Package report is what the tools of "rdmad perf" say: tables with the columns of perftest in
// their order and those that it lacks behind them, JSON with its keys and more, and
// thresholds.
package report
