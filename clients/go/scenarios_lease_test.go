package rdq_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rdq "github.com/rdq-project/rdq/clients/go"
	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	workMethod   = rdqv1.TaskService_Work_FullMethodName
	extendMethod = rdqv1.TaskService_ExtendLeases_FullMethodName
)

func TestLeaseExtended(t *testing.T) {
	f := start(t)
	const lease = 3 * time.Second
	f.configure("q", rdq.QueueConfig{Lease: new(lease)})
	id := f.enqueue(rdq.NewTask{})
	starts, finish := make(chan struct{}, 10), make(chan struct{})
	f.work(rdq.WorkerOptions{}, func(context.Context, *rdq.Claim) ([]byte, error) {
		starts <- struct{}{}
		<-finish
		return []byte("once"), nil
	})
	receive(f, "the handler starts", starts)

	f.until("the lease was extended to several times its length", func() bool {
		if stolen := f.claim("q", "another"); stolen != nil {
			t.Fatalf("another claimant has the task, with attempt %d", stolen.GetAttemptNo())
		}
		task := f.get(id)
		return task.LeaseExpiresAt.Sub(task.ClaimedAt) > 3*lease
	})
	close(finish)
	task := f.ends(id, rdq.StatusSucceeded)
	if len(starts) != 0 || len(task.Attempts) != 1 || task.LeaseExpiredCount != 0 {
		t.Errorf("the handler ran %d times more, the attempts are %+v", len(starts), task.Attempts)
	}
}

func TestLeaseLostMidHandler(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{Lease: new(2 * time.Second)})
	between := startProxy(t, f.server.address())
	obeys := f.enqueue(rdq.NewTask{Payload: []byte("obeys")})
	ends := f.enqueue(rdq.NewTask{Payload: []byte("ends")}) // while nobody hears of it
	starts, hole, causes := make(chan struct{}, 2), make(chan struct{}), make(chan error, 1)
	// Without a free handler, for the server would send the tasks into the hole once more.
	options := rdq.WorkerOptions{Concurrency: 2}
	worker := f.workWith(newClient(t, between.address()), options, func(worker *rdq.Worker) {
		worker.Handle("h", func(ctx context.Context, claim *rdq.Claim) ([]byte, error) {
			starts <- struct{}{}
			if string(claim.Payload) == "ends" {
				<-hole
				return []byte("mine"), nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return []byte("mine"), nil
		})
	})
	receive(f, "a handler starts", starts)
	receive(f, "the other handler starts", starts)

	between.hold(true, true)
	close(hole)
	others := map[string]*rdqv1.ClaimedTask{}
	f.until("another claimed both", func() bool {
		if claimed := f.claim("q", "another"); claimed != nil {
			others[claimed.GetTask().GetId()] = claimed
			// The lease is for this one to keep, from now on.
			_, err := f.client.TaskService().ExtendLease(f.ctx, &rdqv1.ExtendLeaseRequest{
				Id: claimed.GetTask().GetId(), ClaimToken: claimed.GetClaimToken(), Lease: durationpb.New(time.Hour),
			})
			f.must(err)
		}
		return len(others) == 2
	})
	between.hold(false, false)
	if cause := receive(f, "the handler is stopped", causes); !errors.Is(cause, rdq.ErrClaimLost) {
		t.Errorf("the cause is %v", cause)
	}
	f.must(worker.stop()) // every outcome is answered

	for _, id := range []string{obeys, ends} {
		if task := f.get(id); task.Status != rdq.StatusInFlight || task.ClaimedBy != "another" {
			t.Errorf("%s is %s, held by %q", id, task.Status, task.ClaimedBy)
		}
		_, err := f.client.TaskService().Complete(f.ctx, &rdqv1.CompleteRequest{
			Id: id, ClaimToken: others[id].GetClaimToken(), Result: []byte("the other's"),
		})
		f.must(err)
		task := f.get(id)
		outcomes := []rdq.AttemptOutcome{}
		for _, attempt := range task.Attempts {
			outcomes = append(outcomes, attempt.Outcome)
		}
		if string(task.Result) != "the other's" ||
			!slices.Equal(outcomes, []rdq.AttemptOutcome{rdq.OutcomeLeaseExpired, rdq.OutcomeSuccess}) {
			t.Errorf("%s has result %q after %v", id, task.Result, outcomes)
		}
	}
}

func TestLeaseAllButGone(t *testing.T) {
	f := start(t)
	id := f.enqueue(rdq.NewTask{Lease: time.Minute})
	var mu sync.Mutex
	var generations []int64
	// What a server says that took long to send the first claim.
	slow := &relay{down: func(method string, message []byte) []byte {
		if method != workMethod {
			return message
		}
		return rewritten(message, &rdqv1.WorkResponse{}, func(response *rdqv1.WorkResponse) {
			mu.Lock()
			defer mu.Unlock()
			for _, claimed := range response.GetTasks() {
				if generations = append(generations, claimed.GetGeneration()); len(generations) == 1 {
					claimed.LeaseRemaining = durationpb.New(5 * time.Second)
				}
			}
		})
	}}
	started := make(chan int64, 2)
	f.workWith(newClient(t, startRelay(t, f.server.address(), slow)), rdq.WorkerOptions{}, func(worker *rdq.Worker) {
		worker.Handle("h", func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
			started <- claim.Generation
			return nil, nil
		})
	})

	task := f.ends(id, rdq.StatusSucceeded)
	mu.Lock()
	defer mu.Unlock()
	if len(generations) != 2 || len(started) != 1 || <-started != generations[1] {
		t.Errorf("of the claims %v, %d more started", generations, len(started))
	}
	if len(task.Attempts) != 1 || task.AttemptCount != 1 || task.LeaseExpiredCount != 0 {
		t.Errorf("the attempts are %+v", task.Attempts)
	}
}

func TestCancelMidHandler(t *testing.T) {
	f := start(t)
	id := f.enqueue(rdq.NewTask{})
	starts, causes := make(chan struct{}, 1), make(chan error, 1)
	f.work(rdq.WorkerOptions{}, func(ctx context.Context, _ *rdq.Claim) ([]byte, error) {
		starts <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return []byte("all the same"), nil
	})
	receive(f, "the handler starts", starts)

	status, cancelled, err := f.client.Cancel(f.ctx, id)
	f.must(err)
	if status != rdq.StatusCancelled || !cancelled {
		t.Errorf("Cancel answers %s, %t", status, cancelled)
	}
	if cause := receive(f, "the handler is stopped", causes); !errors.Is(cause, rdq.ErrTaskCancelled) {
		t.Errorf("the cause is %v", cause)
	}
	task := f.get(id)
	if task.Status != rdq.StatusCancelled || len(task.Result) != 0 || len(task.Attempts) != 1 ||
		task.Attempts[0].Outcome != rdq.OutcomeCancelled {
		t.Errorf("the task is %s with %+v", task.Status, task.Attempts)
	}
}

func TestRedelivery(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{Lease: new(2 * time.Second)})
	id := f.enqueue(rdq.NewTask{})
	// Heartbeats of the first claim get lost, those of the second ask for a lease that outlasts the test.
	var mu sync.Mutex
	var first []byte
	lossy := &relay{
		down: func(method string, message []byte) []byte {
			if method != workMethod {
				return message
			}
			return rewritten(message, &rdqv1.WorkResponse{}, func(response *rdqv1.WorkResponse) {
				mu.Lock()
				defer mu.Unlock()
				if len(response.GetTasks()) > 0 && first == nil {
					first = response.GetTasks()[0].GetClaimToken()
				}
			})
		},
		up: func(method string, message []byte) []byte {
			if method != workMethod {
				return message
			}
			return rewritten(message, &rdqv1.WorkRequest{}, func(request *rdqv1.WorkRequest) {
				mu.Lock()
				defer mu.Unlock()
				request.Heartbeats = slices.DeleteFunc(request.GetHeartbeats(), func(beat *rdqv1.WorkHeartbeat) bool {
					return slices.Equal(beat.GetExtend().GetClaimToken(), first)
				})
				for _, beat := range request.GetHeartbeats() {
					beat.Extend.Lease = durationpb.New(time.Hour)
				}
			})
		},
	}
	type run struct {
		attempt int
		cause   error
	}
	starts, firstMayEnd, secondMayEnd := make(chan int, 5), make(chan struct{}), make(chan struct{})
	stopped := make(chan run, 5)
	f.workWith(newClient(t, startRelay(t, f.server.address(), lossy)), rdq.WorkerOptions{}, func(worker *rdq.Worker) {
		worker.Handle("h", func(ctx context.Context, claim *rdq.Claim) ([]byte, error) {
			starts <- claim.AttemptNo
			if claim.AttemptNo > 1 {
				<-secondMayEnd
				return []byte("of the second"), context.Cause(ctx)
			}
			<-ctx.Done()
			stopped <- run{claim.AttemptNo, context.Cause(ctx)}
			<-firstMayEnd
			return []byte("of the first"), nil
		})
	})

	if attempt := receive(f, "the first delivery", starts); attempt != 1 {
		t.Errorf("attempt %d goes first", attempt)
	}
	if attempt := receive(f, "the second delivery", starts); attempt != 2 {
		t.Errorf("attempt %d goes second", attempt)
	}
	if got := receive(f, "the first handler is stopped", stopped); !errors.Is(got.cause, rdq.ErrClaimLost) {
		t.Errorf("the cause is %v", got.cause)
	}
	close(firstMayEnd)
	before := f.get(id).LeaseExpiresAt
	f.until("the second claim is extended after the first handler ended", func() bool {
		task := f.get(id)
		if task.Status != rdq.StatusInFlight {
			t.Fatalf("the first handler ended the second's claim: %s", task.Status)
		}
		return task.LeaseExpiresAt.After(before)
	})
	close(secondMayEnd)
	task := f.ends(id, rdq.StatusSucceeded)
	if string(task.Result) != "of the second" || len(task.Attempts) != 2 ||
		task.Attempts[0].Outcome != rdq.OutcomeLeaseExpired {
		t.Errorf("the result is %q after %+v", task.Result, task.Attempts)
	}
}
