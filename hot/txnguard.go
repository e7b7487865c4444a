package hot

import "fmt"

// TxnGuard is to be asked for before the coordinator is asked whether a
// producer's transaction is open, and given with the append that relies on the
// answer (AppendOptions.TxnGuard). Between the two a marker may end that very
// transaction; without the guard the append would begin one that nobody ends
// (KIP-890). open says that the partition knows of a transaction of that epoch
// already: then there is nothing to ask.
func (l *Log) TxnGuard(producerID int64, epoch int16) (guard int32, open bool, err error) {
	if err := l.needProducers(); err != nil {
		return 0, false, err
	}
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	p := l.producers.byID[producerID]
	if p == nil {
		return 1, false, nil
	}
	return p.ends + 1, p.inTxn(epoch), nil
}

// verified says why the coordinator's word does not hold for a producer whose
// transactions have ended that many times.
func (o *AppendOptions) verified(ends int32) error {
	switch {
	case !o.TxnVerified:
		return fmt.Errorf("no transaction is open here: %w", ErrInvalidTxnState)
	case o.TxnGuard != 0 && o.TxnGuard != ends+1:
		return fmt.Errorf("%w: %w", ErrInvalidTxnState, ErrTxnEndedMeanwhile)
	}
	return nil
}
