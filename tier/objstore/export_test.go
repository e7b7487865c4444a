package objstore

// SetLimits makes bodies over single bytes go up in parts of the given size, so that tests need no 5 GiB.
func (s *S3) SetLimits(single, part int64) { s.singlePutMax, s.partBytes = single, part }

// PartSize is partSize, for its test.
var PartSize = partSize
