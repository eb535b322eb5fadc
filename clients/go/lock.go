package rdq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	defaultLockTTL = 30 * time.Second
	// releaseWithin bounds a release; forgetWithin that of a lock of which nobody knows whether it was acquired.
	releaseWithin, forgetWithin = 5 * time.Second, time.Second
)

// lockBackoff spaces the tries to acquire a lock that another holds.
var lockBackoff = backoff{base: 100 * time.Millisecond, limit: time.Second}

var (
	// ErrLockHeld says that another holds the lock, and did so for as long as [Client.Lock] could wait.
	ErrLockHeld = errors.New("rdq: another holds the lock")
	// ErrLockLost is the cause of the end of a lock's context once the lock is lost.
	ErrLockLost = errors.New("rdq: the lock is lost")
)

// LockOptions are the optional settings of [Client.Lock]. The zero value is ready for use.
type LockOptions struct {
	// TTL is how long the hold lasts if it is not renewed, which the lock does at a third of it; 30 seconds if 0.
	TTL time.Duration
	// Wait is how long to wait for a lock that another holds; not at all if 0.
	Wait time.Duration
	// Owner names the holder; host, process id and random letters if empty. Two who share an owner share the lock.
	Owner string
	// Logger is slog's default if nil.
	Logger *slog.Logger
}

// A Lock is held, and renewed in the background, until it is released or lost. It is safe for use by many goroutines.
type Lock struct {
	client     *Client
	stub       rdqv1.LockServiceClient
	log        *slog.Logger
	name       string
	owner      string
	ttl        time.Duration
	generation int64

	ctx   context.Context // ends when the lock is lost or released
	end   context.CancelCauseFunc
	over  context.Context // ends then too, but not with the context of the caller, who holds the lock until the release
	close context.CancelFunc
	once  sync.Once

	mu       sync.Mutex
	ends     time.Time // of the hold, by the monotonic clock; never later than the server's
	expiry   *time.Timer
	lastFail error // of the last renewal, nil if it succeeded
	isLost   bool
}

// Lock acquires a lock, and keeps it until [Lock.Release]. If another holds it for longer than the options say to wait,
// the error is [ErrLockHeld]. Do what the lock guards under its [Lock.Context]:
//
//	lock, err := client.Lock(ctx, "nightly", rdq.LockOptions{})
//	if err != nil {
//		return err
//	}
//	defer lock.Release()
//	return report(lock.Context(), lock.Generation())
func (c *Client) Lock(ctx context.Context, name string, options LockOptions) (*Lock, error) {
	l := &Lock{
		client: c, stub: c.LockService(), log: options.Logger, name: name, owner: options.Owner, ttl: options.TTL,
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	if l.owner == "" {
		l.owner = newWorkerID()
	}
	if l.ttl == 0 {
		l.ttl = defaultLockTTL
	}
	until := time.Now().Add(options.Wait)
	for failures := 1; ; failures++ {
		sent, response, err := l.try(ctx)
		if err != nil {
			l.forget(ctx)
			return nil, err
		}
		if response.GetAcquired() {
			l.begin(ctx, sent, response)
			return l, nil
		}
		left := time.Until(until)
		if left <= 0 {
			return nil, ErrLockHeld
		}
		if !sleep(ctx, min(lockBackoff.wait(failures), left)) {
			return nil, contextError(ctx, nil)
		}
	}
}

// try asks for the lock once, and says when that try was sent whose answer this is.
func (l *Lock) try(ctx context.Context) (sent time.Time, response *rdqv1.TryLockResponse, err error) {
	err = l.client.retry(ctx, func(ctx context.Context) error {
		sent = time.Now()
		var err error
		response, err = l.stub.TryLock(ctx, &rdqv1.TryLockRequest{
			Name: l.name, Owner: l.owner, Ttl: durationpb.New(l.ttl),
		})
		return err
	})
	return sent, response, err
}

// forget releases a lock that may have been acquired although the call failed.
func (l *Lock) forget(ctx context.Context) {
	releasing, end := context.WithTimeout(context.WithoutCancel(ctx), forgetWithin)
	defer end()
	_, err := l.stub.Release(releasing, &rdqv1.LockServiceReleaseRequest{Name: l.name, Owner: l.owner})
	if err != nil {
		l.log.Debug("rdq: a lock that may be held was not released", "lock", l.name, "error", FromError(err))
	}
}

func (l *Lock) begin(ctx context.Context, sent time.Time, response *rdqv1.TryLockResponse) {
	l.generation = response.GetGeneration()
	l.ctx, l.end = context.WithCancelCause(ctx)
	l.over, l.close = context.WithCancel(context.WithoutCancel(ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = l.endOf(sent, response.GetRemaining())
	l.expiry = time.AfterFunc(time.Until(l.ends), l.expire)
	go l.renew(sent)
}

// endOf is the end of a hold, by the answer to a try that was sent then.
func (l *Lock) endOf(sent time.Time, remaining *durationpb.Duration) time.Time {
	return sent.Add(min(remaining.AsDuration(), l.ttl))
}

// renew renews the hold until it is over.
func (l *Lock) renew(sent time.Time) {
	next := sent.Add(l.ttl / 3)
	for sleep(l.over, time.Until(next)) {
		sent := time.Now()
		var response *rdqv1.RenewResponse
		failure, _ := attempt(l.over, func(ctx context.Context) error {
			ctx, cancel := context.WithDeadline(ctx, l.holdEnd())
			defer cancel()
			var err error
			response, err = l.stub.Renew(ctx, &rdqv1.RenewRequest{
				Name: l.name, Owner: l.owner, Generation: &l.generation, Ttl: durationpb.New(l.ttl),
			})
			return err
		})
		next = l.renewed(sent, response, failure)
	}
}

// renewed takes the answer to a renewal in, and says when the next one is due.
func (l *Lock) renewed(sent time.Time, response *rdqv1.RenewResponse, failure *Error) (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over.Err() != nil: // an answer that comes too late brings nothing back
	case failure != nil:
		l.lastFail = failure
		l.log.Warn("rdq: a lock was not renewed", "lock", l.name, "owner", l.owner, "error", failure)
		return time.Now().Add(max(l.ttl/10, time.Millisecond))
	case !response.GetRenewed():
		l.lastFail = nil
		l.lose()
	default:
		l.lastFail = nil
		l.ends = l.endOf(sent, response.GetRemaining())
		l.expiry.Reset(time.Until(l.ends))
	}
	return sent.Add(l.ttl / 3)
}

// expire loses the lock if the end of the hold has come.
func (l *Lock) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := time.Until(l.ends); left > 0 {
		l.expiry.Reset(left) // it was renewed just then
		return
	}
	l.lose()
}

// lose tells the holder. The mutex is held.
func (l *Lock) lose() {
	if l.over.Err() != nil {
		return
	}
	l.isLost = true
	cause := ErrLockLost
	if l.lastFail != nil {
		cause = fmt.Errorf("%w; the last renewal: %w", ErrLockLost, l.lastFail)
	}
	l.log.Error("rdq: a lock is lost", "lock", l.name, "owner", l.owner, "generation", l.generation, "error", cause)
	l.end(cause)
	l.close()
}

func (l *Lock) holdEnd() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends
}

// Release ends the hold, and with it the context of the lock. It takes 5 seconds at most; a release that fails is logged,
// and the hold ends by itself. Of a lock that is lost, and when it is called again, it does nothing.
func (l *Lock) Release() {
	l.once.Do(func() {
		l.mu.Lock()
		l.expiry.Stop()
		l.close()
		l.end(context.Canceled)
		isLost, until := l.isLost, time.Now().Add(releaseWithin)
		if l.ends.Before(until) {
			until = l.ends
		}
		l.mu.Unlock()
		if isLost {
			return
		}
		releasing, end := context.WithDeadline(context.WithoutCancel(l.ctx), until)
		defer end()
		_, err := call(releasing, l.client, l.stub.Release, &rdqv1.LockServiceReleaseRequest{
			Name: l.name, Owner: l.owner, Generation: &l.generation,
		})
		if err != nil {
			l.log.Warn("rdq: a lock was not released and ends by itself",
				"lock", l.name, "owner", l.owner, "generation", l.generation, "error", err)
		}
	})
}

// Context is that of the call of [Client.Lock], ended also as soon as the lock is lost, with a cause that matches
// [ErrLockLost] and the error of the last renewal, and by the release. It ends no later than the hold does at the server,
// whatever becomes of the connection; a process that is stopped as a whole is told late.
func (l *Lock) Context() context.Context { return l.ctx }

// Generation is the fencing number of the hold: it grows with each acquisition of the lock. What the lock guards should
// refuse generations lower than one that it saw.
func (l *Lock) Generation() int64 { return l.generation }

// Name is the lock's.
func (l *Lock) Name() string { return l.name }

// Owner is the holder's name.
func (l *Lock) Owner() string { return l.owner }

// Lost reports whether the lock was lost before it was released.
func (l *Lock) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isLost
}
