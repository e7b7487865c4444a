package isr

import "testing"

func TestUncleanLeaderYieldsToTheBucket(t *testing.T) {
	bucket := Archive{Start: 10, End: 80, Lineage: chain(2, 10, 5, 60)}
	for _, c := range []struct {
		name string
		v    View
		a    Archive
		want bool
	}{
		{"the same history and more", View{End: 100, Lineage: chain(2, 10, 5, 60, 6, 90)}, bucket, false},
		{"the same history to the same end", View{End: 80, Lineage: chain(2, 10, 5, 60)}, bucket, false},
		{"trimmed inside an epoch", View{End: 100, Lineage: chain(2, 30, 5, 60)}, bucket, false},
		{"a shorter log", View{End: 79, Lineage: chain(2, 10, 5, 60)}, bucket, true},
		{"an epoch that ends elsewhere", View{End: 100, Lineage: chain(2, 10, 5, 61)}, bucket, true},
		{"an epoch that the bucket lacks", View{End: 100, Lineage: chain(2, 10, 4, 50, 5, 60)}, bucket, true},
		{"an epoch that is not here", View{End: 100, Lineage: chain(2, 10)}, bucket, true},
		{"nothing here", View{}, bucket, true},
		{"all of it above the bucket", View{LocalStart: 90, End: 100, Lineage: chain(6, 90)}, bucket, false},
		{"nothing in the bucket", View{End: 100, Lineage: chain(2, 10)}, Archive{Start: -1, End: -1}, false},
	} {
		if got := Yields(c.v, c.a); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
