package rdq

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is exponential with full jitter: before try n a time from 0 to base·2ⁿ, but never more than limit, is waited.
type backoff struct {
	base, limit time.Duration
}

var (
	// callBackoff spaces the tries of a unary call, and of outcomes that were refused for the moment.
	callBackoff = backoff{base: 100 * time.Millisecond, limit: 5 * time.Second}
	// connectBackoff spaces the tries of a worker to connect.
	connectBackoff = backoff{base: 100 * time.Millisecond, limit: 10 * time.Second}
)

// ceiling is the longest wait after so many failures, counted from 1.
func (b backoff) ceiling(failures int) time.Duration {
	ceiling := b.base
	for range max(0, failures-1) {
		ceiling *= 2
		if ceiling >= b.limit {
			return b.limit
		}
	}
	return ceiling
}

// wait draws the wait after so many failures, counted from 1.
func (b backoff) wait(failures int) time.Duration {
	return rand.N(b.ceiling(failures) + 1)
}

// sleep waits, and reports false if the context ended before.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
