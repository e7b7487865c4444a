package tier

import "fmt"

// timeoutOf is the deadline that the core gives a call.
func timeoutOf(fx effect) int64 {
	switch e := fx.(type) {
	case fxLoad:
		return e.timeoutMillis
	case fxClaim:
		return e.timeoutMillis
	case fxUpload:
		return e.timeoutMillis
	case fxCommit:
		return e.timeoutMillis
	case fxOldest:
		return e.timeoutMillis
	case fxMarked:
		return e.timeoutMillis
	case fxDelete:
		return e.timeoutMillis
	case fxCollect:
		return e.timeoutMillis
	case fxScrub:
		return e.timeoutMillis
	case fxExamine:
		return e.timeoutMillis
	case fxMend:
		return e.timeoutMillis
	}
	panic(fmt.Sprintf("no timeout for %T", fx))
}

// failed is the answer of a call that did not succeed.
func failed(fx effect, a answer, err error) event {
	a.err = err
	switch e := fx.(type) {
	case fxLoad:
		return evLoaded{answer: a}
	case fxClaim:
		return evClaimed{answer: a}
	case fxUpload:
		return evUploaded{answer: a, id: e.id, bytes: e.bytes}
	case fxCommit:
		return evCommitted{answer: a}
	case fxOldest:
		return evOldest{answer: a}
	case fxMarked:
		return evMarked{answer: a}
	case fxDelete:
		return evDeleted{answer: a, ids: e.ids, key: e.keys[0]}
	case fxCollect:
		return collected(e, a, false, nil)
	case fxScrub:
		return evScrubbed{answer: a}
	case fxExamine:
		return evExamined{answer: a, object: e.object}
	case fxMend:
		return evMended{answer: a, id: e.id, object: e.object, bytes: e.bytes}
	}
	panic(fmt.Sprintf("no answer for %T", fx))
}
