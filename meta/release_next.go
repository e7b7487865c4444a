//go:build varve_next

package meta

// A build with the tag varve_next stands for the release after this one, in
// tests of rolling upgrades: it has one level more, and writes at that level
// what this release cannot read.

const levelMax = levelNext

const (
	levelNext int16     = levelRelease + 1
	tagNext   changeTag = 250
)

// nextRelease is a change that only the next release knows.
type nextRelease struct{ Broker int32 }

func (nextRelease) tag() changeTag             { return tagNext }
func (c nextRelease) encode(e *encoder)        { e.int(int64(c.Broker)) }
func (nextRelease) apply(*Image, uint64) error { return nil }
func (nextRelease) since() int16               { return levelNext }

func decodeLater(tag changeTag, d *decoder) Change {
	if tag == tagNext {
		return nextRelease{d.i32()}
	}
	return nil
}

func laterChanges(img *Image, id int32) []Change {
	if img.level() < levelNext {
		return nil
	}
	return []Change{nextRelease{id}}
}
