//go:build !varve_next

package meta

// levelMax is the highest level of VersionFeature that this release can be at.
const levelMax = levelRelease

// decodeLater decodes changes of levels beyond those of this file's siblings;
// nil is one that is not known.
func decodeLater(changeTag, *decoder) Change { return nil }

// laterChanges are what a registration says at such levels.
func laterChanges(*Image, int32) []Change { return nil }
