package kafka

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// retryPause is the pause before a cluster that is changing is asked again.
const retryPause = 100 * time.Millisecond

// retry tries until the answer is final or ctx is done, and returns the last error.
func retry(ctx context.Context, try func() error) error {
	err := try()
	for isTemporary(err) && sleep(ctx, retryPause) {
		err = try()
	}
	return err
}

// persist is retry, and makes a missing topic again.
func (q *Queue) persist(ctx context.Context, try func() error) error {
	return retry(ctx, func() error {
		err := try()
		if missing(err) {
			err = cmp.Or(q.restore(ctx), err)
		}
		return err
	})
}

// isTemporary reports whether brokers or the layout of the cluster may answer
// otherwise in a moment, as while a partition gets another leader.
func isTemporary(err error) bool {
	var e kafka.Error
	return errors.As(err, &e) && e.Temporary() ||
		errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) || errors.Is(err, protocol.ErrNoLeader)
}

// sleep reports whether the time has passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
