//go:build !race

package fuzztest

const raceDetector = false
