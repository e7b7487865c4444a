//go:build race

package tier

// raceDetector is set in builds with the race detector.
const raceDetector = true
