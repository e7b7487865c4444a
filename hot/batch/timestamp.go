package batch

// FindTimestamp finds the first record, in offset order, whose timestamp is
// target or later; timestamps inside a batch need not be in order. found is
// false when there is none. Whether the batch is data is the caller's matter.
func FindTimestamp(b Batch, target int64, lim Limits) (offset, timestamp int64, found bool, err error) {
	if b.MaxTimestamp() < target {
		return -1, NoTimestamp, false, nil
	}
	var w walker
	defer w.close()
	if err := w.open(b, lim, true); err != nil {
		return -1, NoTimestamp, false, b.corrupt(err)
	}
	for {
		ok, err := w.next()
		if err != nil {
			return -1, NoTimestamp, false, b.corrupt(err)
		}
		if !ok {
			return -1, NoTimestamp, false, nil
		}
		if t := w.timestamp(); t >= target {
			return w.offset(), t, true, nil
		}
	}
}

// FindMaxTimestamp finds the first record with the largest timestamp of the
// batch. found is false when the batch has no record left.
func FindMaxTimestamp(b Batch, lim Limits) (offset, timestamp int64, found bool, err error) {
	var w walker
	defer w.close()
	if err := w.open(b, lim, true); err != nil {
		return -1, NoTimestamp, false, b.corrupt(err)
	}
	for {
		ok, err := w.next()
		if err != nil {
			return -1, NoTimestamp, false, b.corrupt(err)
		}
		if !ok {
			return offset, timestamp, found, nil
		}
		if t := w.timestamp(); !found || t > timestamp {
			offset, timestamp, found = w.offset(), t, true
		}
	}
}
