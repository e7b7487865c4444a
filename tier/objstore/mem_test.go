package objstore_test

import (
	"testing"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

func TestMemAcceptance(t *testing.T) {
	objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store { return objstore.NewMem(0) })
}
