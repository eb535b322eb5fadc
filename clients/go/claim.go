package rdq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// progressBytesMax is what the contract takes of progress.
const progressBytesMax = 64 << 10

// A Handler does the work of a task. What it returns is the task's result, at most 64 KiB; an error makes the attempt
// a failure, which the queue's policy retries or not. [Permanent], [Retryable], [RetryAfter] and [Snooze] say more, and
// [WithType] names the error.
//
// The context ends when the handler has to stop, and context.Cause says why: [ErrClaimLost], [ErrTaskCancelled],
// [ErrTaskExpired], [ErrExecutionTimeout] or [ErrGraceOver]. A handler that panics fails the attempt.
type Handler func(ctx context.Context, claim *Claim) ([]byte, error)

// An OutcomeMapper sees what a handler returned, before anything is sent, and returns what counts instead, in the same
// words: it can make a result a [Permanent] error, or an error a success.
type OutcomeMapper func(ctx context.Context, claim *Claim, result []byte, err error) ([]byte, error)

// Why the context of a handler ended: these are what context.Cause returns.
var (
	// ErrClaimLost says that somebody else may hold the task: nothing of this handler counts any more.
	ErrClaimLost = errors.New("rdq: the claim is lost")
	// ErrTaskCancelled says that the task was cancelled.
	ErrTaskCancelled = errors.New("rdq: the task was cancelled")
	// ErrTaskExpired says that the task's expiry passed.
	ErrTaskExpired = errors.New("rdq: the task expired")
	// ErrExecutionTimeout says that the queue's execution timeout is over; the attempt fails as "rdq.Timeout".
	ErrExecutionTimeout = errors.New("rdq: the execution timeout is over")
	// ErrGraceOver says that the worker stops and its grace is over; the claim is given back unless the handler
	// succeeds all the same.
	ErrGraceOver = errors.New("rdq: the grace of the worker's shutdown is over")
)

// A Claim is a task that a handler holds, for one attempt.
type Claim struct {
	Task

	// AttemptNo is the number that this attempt will have in the history.
	AttemptNo int
	// MaxAttempts is how many attempts the task has, its own or the queue's.
	MaxAttempts int
	// Generation grows with every claim of the task, for ever. Hand it to systems outside rdq that should refuse a
	// slower, older worker.
	Generation int64

	mu       sync.Mutex
	progress []byte
	version  uint64 // of progress, grows with each SetProgress
}

// SetProgress keeps a checkpoint with the task: the next attempt finds it in Progress. It is sent with the next
// heartbeat, at the latest before a failure is; at most 64 KiB, else [ErrPayloadTooLarge]. The slice is copied.
func (c *Claim) SetProgress(progress []byte) error {
	if len(progress) > progressBytesMax {
		return &Error{
			Code: codes.InvalidArgument, Reason: ErrPayloadTooLarge,
			Message: fmt.Sprintf("`progress` has %d bytes; its limit is %d", len(progress), progressBytesMax),
			Metadata: map[string]string{
				"field": "progress", "limit_bytes": strconv.Itoa(progressBytesMax),
				"size_bytes": strconv.Itoa(len(progress)),
			},
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = append([]byte{}, progress...)
	c.version++
	return nil
}

// checkpoint is the progress that was set last, and its version; 0 if none was.
func (c *Claim) checkpoint() ([]byte, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress, c.version
}

func claimOf(proto *rdqv1.ClaimedTask) *Claim {
	return &Claim{
		Task:        *taskOf(proto.GetTask()),
		AttemptNo:   int(proto.GetAttemptNo()),
		MaxAttempts: int(proto.GetMaxAttempts()),
		Generation:  proto.GetGeneration(),
	}
}

// A lease is how long a claim is held, by this process's monotonic clock.
type lease struct {
	// length is that of the whole lease.
	length time.Duration
	// ends is when it runs out.
	ends time.Time
}

func leaseOf(proto *rdqv1.ClaimedTask, arrived time.Time) lease {
	remaining := proto.GetLeaseRemaining().AsDuration()
	length := remaining
	from, to := proto.GetTask().GetClaimedAt(), proto.GetTask().GetLeaseExpiresAt()
	if from != nil && to != nil {
		// Both by the storage's clock.
		length = max(length, to.AsTime().Sub(from.AsTime()))
	}
	return lease{length: max(length, time.Millisecond), ends: arrived.Add(remaining)}
}

// margin is what has to be left of the lease for a handler to start.
func (l lease) margin() time.Duration {
	return min(max(l.length/10, 100*time.Millisecond), l.length/2)
}

// allButGone reports whether it is too late to start a handler.
func (l lease) allButGone(now time.Time) bool { return l.ends.Sub(now) < l.margin() }

// beatAfter is the time from a heartbeat that was answered to the next one.
func (l lease) beatAfter() time.Duration { return l.length / 3 }

// beatAgainAfter is the time from a heartbeat that was not answered to the next one.
func (l lease) beatAgainAfter() time.Duration { return max(l.length/10, time.Millisecond) }

// timeoutAfter is how much of an execution timeout is left when the claim arrives. The server lets no lease outlast the
// timeout, and hands the task out again at that very moment. So a handler is stopped a little sooner, by a fifth of the
// timeout but never more than a second: else the failure would come when the claim is somebody else's.
func (l lease) timeoutAfter(timeout, remaining time.Duration) time.Duration {
	left := timeout - (l.length - remaining)
	if l.length <= timeout {
		left -= min(timeout/5, time.Second)
	}
	return max(left, 0)
}
