//go:build race

package fuzztest

// raceDetector is set where the race detector's own memory would be counted.
const raceDetector = true
