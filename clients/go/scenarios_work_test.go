package rdq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rdq "github.com/rdq-project/rdq/clients/go"
)

func TestHappyPath(t *testing.T) {
	f := start(t)
	one := f.enqueue(rdq.NewTask{Payload: []byte("one")})
	var tasks []rdq.NewTask
	for i := range 20 {
		tasks = append(tasks, rdq.NewTask{Queue: "q", HandlerRef: "h", Payload: fmt.Appendf(nil, "%d", i)})
	}
	many, err := f.client.EnqueueMany(f.ctx, tasks)
	f.must(err)
	f.work(rdq.WorkerOptions{}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		return append([]byte("did "), claim.Payload...), nil
	})

	if result := f.ends(one, rdq.StatusSucceeded).Result; string(result) != "did one" {
		t.Errorf("the result is %q", result)
	}
	for i, admission := range many {
		task := f.ends(admission.ID, rdq.StatusSucceeded)
		if want := fmt.Sprintf("did %d", i); string(task.Result) != want || len(task.Attempts) != 1 {
			t.Errorf("task %d: result %q after %d attempts, want %q after 1", i, task.Result, len(task.Attempts), want)
		}
	}
}

// A brokenPipe is an error of a type of its own.
type brokenPipe struct{ times int }

func (e *brokenPipe) Error() string { return fmt.Sprintf("broken %d times", e.times) }

func TestRetryThenSuccess(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{InitialBackoff: new(10 * time.Millisecond)})
	id := f.enqueue(rdq.NewTask{})
	f.work(rdq.WorkerOptions{}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		switch claim.AttemptNo {
		case 1:
			return nil, fmt.Errorf("sending: %w", &brokenPipe{times: 1})
		case 2:
			return nil, rdq.WithType("http.503", errors.New("not now"))
		default:
			return []byte("done"), nil
		}
	})

	task := f.ends(id, rdq.StatusSucceeded)
	if len(task.Attempts) != 3 || task.AttemptCount != 3 {
		t.Fatalf("%d attempts, %d counted, want 3", len(task.Attempts), task.AttemptCount)
	}
	for i, want := range []struct {
		outcome                   rdq.AttemptOutcome
		errorType, message, stack string
	}{
		{rdq.OutcomeRetryableFailure, "rdq_test.brokenPipe", "sending: broken 1 times", "TestRetryThenSuccess"},
		{rdq.OutcomeRetryableFailure, "http.503", "not now", "scenarios_work_test.go:"},
		{outcome: rdq.OutcomeSuccess},
	} {
		attempt := task.Attempts[i]
		if attempt.No != i+1 || attempt.Outcome != want.outcome {
			t.Errorf("attempt %d is number %d and %s", i+1, attempt.No, attempt.Outcome)
		}
		if want.errorType == "" {
			if attempt.Error != nil {
				t.Errorf("attempt %d has an error: %v", i+1, attempt.Error)
			}
			continue
		}
		if attempt.Error == nil || attempt.Error.Type != want.errorType || attempt.Error.Message != want.message ||
			!strings.Contains(attempt.Error.Stack, want.stack) {
			t.Errorf("attempt %d has error %+v, want %+v", i+1, attempt.Error, want)
		}
	}
}

func TestRetryAfterAndSnooze(t *testing.T) {
	f := start(t)
	later := f.enqueue(rdq.NewTask{Payload: []byte("later")})
	snoozed := f.enqueue(rdq.NewTask{Payload: []byte("snooze")})
	var snoozes atomic.Int32
	f.work(rdq.WorkerOptions{}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		switch {
		case string(claim.Payload) == "snooze" && snoozes.Add(1) == 1:
			return nil, rdq.Snooze(time.Millisecond)
		case string(claim.Payload) == "later" && claim.AttemptNo == 1:
			return nil, rdq.RetryAfter(time.Millisecond, errors.New("busy"))
		default:
			return nil, nil
		}
	})

	task := f.ends(later, rdq.StatusSucceeded)
	if len(task.Attempts) != 2 || task.Attempts[0].Error.Message != "busy" ||
		task.Attempts[0].Outcome != rdq.OutcomeRetryableFailure {
		t.Errorf("RetryAfter: the attempts are %+v", task.Attempts)
	}
	task = f.ends(snoozed, rdq.StatusSucceeded)
	if len(task.Attempts) != 1 || task.Attempts[0].Outcome != rdq.OutcomeSuccess || snoozes.Load() != 2 {
		t.Errorf("Snooze: %d runs, the attempts are %+v", snoozes.Load(), task.Attempts)
	}
}

func TestPermanentFailure(t *testing.T) {
	f := start(t)
	id := f.enqueue(rdq.NewTask{})
	f.work(rdq.WorkerOptions{}, func(context.Context, *rdq.Claim) ([]byte, error) {
		return nil, fmt.Errorf("wrapped: %w", rdq.Permanent(rdq.WithType("bad.input", errors.New("no such user"))))
	})

	task := f.ends(id, rdq.StatusDead)
	if len(task.Attempts) != 1 || task.Attempts[0].Outcome != rdq.OutcomePermanentFailure ||
		task.Attempts[0].Error.Type != "bad.input" || task.Attempts[0].Error.Message != "wrapped: no such user" {
		t.Errorf("the attempts are %+v", task.Attempts)
	}
	page, err := f.client.DLQListPage(f.ctx, "q", rdq.DLQListOptions{}, "")
	f.must(err)
	if len(page.Items) != 1 || page.Items[0].ID != id {
		t.Errorf("the dead letters are %+v", page.Items)
	}
}

func TestRetryableFailure(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{InitialBackoff: new(time.Millisecond), Permanent: []string{"*"}})
	dies := f.enqueue(rdq.NewTask{Payload: []byte("plain")})
	lives := f.enqueue(rdq.NewTask{Payload: []byte("retryable")})
	panics := f.enqueue(rdq.NewTask{Payload: []byte("panic")})
	f.work(rdq.WorkerOptions{}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		switch {
		case string(claim.Payload) == "panic":
			panic("by hand")
		case claim.AttemptNo > 1:
			return nil, nil
		case string(claim.Payload) == "retryable":
			return nil, rdq.Retryable(errors.New("once"))
		default:
			return nil, errors.New("once")
		}
	})

	f.ends(dies, rdq.StatusDead)
	if attempts := len(f.ends(lives, rdq.StatusSucceeded).Attempts); attempts != 2 {
		t.Errorf("%d attempts", attempts)
	}
	cause := f.ends(panics, rdq.StatusDead).Attempts[0].Error
	if cause.Type != rdq.TypePanic || cause.Message != "panic: by hand" ||
		!strings.Contains(cause.Stack, "TestRetryableFailure") {
		t.Errorf("the panic is %+v", cause)
	}
}

func TestOutcomeMapper(t *testing.T) {
	f := start(t)
	rejected := f.enqueue(rdq.NewTask{Payload: []byte("rejected")})
	forgiven := f.enqueue(rdq.NewTask{Payload: []byte("forgiven")})
	f.work(rdq.WorkerOptions{
		MapOutcome: func(_ context.Context, claim *rdq.Claim, result []byte, err error) ([]byte, error) {
			if string(result) == "rejected" {
				return nil, rdq.Permanent(rdq.WithType("mapped", errors.New("the answer was: "+string(result))))
			}
			if err != nil && err.Error() == "forgiven" {
				return []byte("all right"), nil
			}
			return result, err
		},
	}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		if string(claim.Payload) == "rejected" {
			return claim.Payload, nil
		}
		return nil, errors.New(string(claim.Payload))
	})

	task := f.ends(rejected, rdq.StatusDead)
	if task.Attempts[0].Error.Type != "mapped" || task.Attempts[0].Outcome != rdq.OutcomePermanentFailure {
		t.Errorf("the attempt is %+v", task.Attempts[0])
	}
	if result := f.ends(forgiven, rdq.StatusSucceeded).Result; string(result) != "all right" {
		t.Errorf("the result is %q", result)
	}
}

func TestUnroutable(t *testing.T) {
	f := start(t)
	id := f.enqueue(rdq.NewTask{HandlerRef: "nobody's"})
	f.work(rdq.WorkerOptions{}, func(context.Context, *rdq.Claim) ([]byte, error) { return nil, nil })

	task := f.ends(id, rdq.StatusDead)
	if len(task.Attempts) != 1 || task.Attempts[0].Error.Type != rdq.TypeUnroutable {
		t.Errorf("the attempts are %+v", task.Attempts)
	}
}

func TestVersionMismatch(t *testing.T) {
	f := start(t)
	f.configure("strict", rdq.QueueConfig{VersionMismatch: rdq.DeadLetter})
	f.configure("lax", rdq.QueueConfig{VersionMismatch: rdq.RunLatest})
	f.workWith(f.client, rdq.WorkerOptions{Queues: []string{"strict", "lax"}}, func(worker *rdq.Worker) {
		says := func(text string) rdq.Handler {
			return func(context.Context, *rdq.Claim) ([]byte, error) { return []byte(text), nil }
		}
		worker.HandleVersion("versioned", "v1", says("one"))
		worker.HandleVersion("versioned", "v2", says("two"))
		worker.Handle("both", says("any"))
		worker.HandleVersion("both", "v2", says("two"))
	})
	for _, each := range []struct{ queue, ref, version, result string }{
		{"strict", "versioned", "v1", "one"},
		{"strict", "versioned", "", "two"}, // the last version registered
		{"strict", "versioned", "v3", ""},
		{"strict", "both", "v1", ""},
		{"lax", "versioned", "v1", "one"},
		{"lax", "versioned", "v3", "two"},
		{"lax", "both", "v1", "any"},
		{"lax", "both", "v2", "two"},
	} {
		id := f.enqueue(rdq.NewTask{Queue: each.queue, HandlerRef: each.ref, HandlerVersion: each.version})
		if each.result == "" {
			task := f.ends(id, rdq.StatusDead)
			if len(task.Attempts) != 1 || task.Attempts[0].Error.Type != rdq.TypeVersionMismatch {
				t.Errorf("%+v: the attempts are %+v", each, task.Attempts)
			}
		} else if result := f.ends(id, rdq.StatusSucceeded).Result; string(result) != each.result {
			t.Errorf("%+v: the result is %q", each, result)
		}
	}
}

func TestExecutionTimeout(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{Timeout: new(4 * time.Second), MaxAttempts: new(1)})
	id := f.enqueue(rdq.NewTask{})
	causes := make(chan error, 1)
	f.work(rdq.WorkerOptions{}, func(ctx context.Context, _ *rdq.Claim) ([]byte, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return []byte("too late"), nil
	})

	if cause := receive(f, "the handler is stopped", causes); !errors.Is(cause, rdq.ErrExecutionTimeout) {
		t.Errorf("the cause is %v", cause)
	}
	task := f.ends(id, rdq.StatusDead)
	if len(task.Attempts) != 1 || task.Attempts[0].Error.Type != rdq.TypeTimeout || len(task.Result) != 0 {
		t.Errorf("the attempts are %+v", task.Attempts)
	}
}

func TestBoundedConcurrency(t *testing.T) {
	f := start(t)
	const concurrency = 4
	var ids []string
	for range 50 {
		ids = append(ids, f.enqueue(rdq.NewTask{}))
	}
	var running, most atomic.Int32
	full := make(chan struct{})
	var once sync.Once
	f.work(rdq.WorkerOptions{Concurrency: concurrency}, func(context.Context, *rdq.Claim) ([]byte, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		if now == concurrency {
			once.Do(func() { close(full) })
		}
		<-full // until all of them run at once
		return nil, nil
	})

	f.until("every task succeeded", func() bool {
		stats := f.stats("q")
		if stats.InFlight > concurrency {
			t.Fatalf("%d claims are in flight", stats.InFlight)
		}
		return stats.Succeeded == int64(len(ids))
	})
	if most.Load() != concurrency {
		t.Errorf("%d handlers ran at once", most.Load())
	}
}

func TestProgressAndResult(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{InitialBackoff: new(time.Millisecond)})
	id := f.enqueue(rdq.NewTask{})
	seen := make(chan []byte, 3)
	results := [][]byte{{}, {0, 1, 0xFE, 0xFF}, bytes.Repeat([]byte{0xAB}, 64<<10)}
	var ids []string
	for i := range results {
		ids = append(ids, f.enqueue(rdq.NewTask{HandlerRef: "result", Payload: []byte{byte(i)}}))
	}
	f.workWith(f.client, rdq.WorkerOptions{}, func(worker *rdq.Worker) {
		worker.Handle("h", func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
			seen <- claim.Progress
			switch claim.AttemptNo {
			case 1:
				if err := claim.SetProgress([]byte("a quarter")); err != nil {
					return nil, rdq.Permanent(err)
				}
				if err := claim.SetProgress(make([]byte, 64<<10+1)); !errors.Is(err, rdq.ErrPayloadTooLarge) {
					return nil, rdq.Permanent(fmt.Errorf("too much progress: %w", err))
				}
				return nil, errors.New("stumbled")
			case 2:
				if err := claim.SetProgress([]byte("half")); err != nil {
					return nil, rdq.Permanent(err)
				}
				return nil, rdq.RetryAfter(0, nil)
			default:
				return nil, nil
			}
		})
		worker.Handle("result", func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
			return results[claim.Payload[0]], nil
		})
	})

	for i, want := range []string{"", "a quarter", "half"} {
		if progress := receive(f, "an attempt", seen); string(progress) != want {
			t.Errorf("attempt %d finds progress %q, want %q", i+1, progress, want)
		}
	}
	if progress := f.ends(id, rdq.StatusSucceeded).Progress; string(progress) != "half" {
		t.Errorf("the progress is %q in the end", progress)
	}
	for i, id := range ids {
		if result := f.ends(id, rdq.StatusSucceeded).Result; !bytes.Equal(result, results[i]) {
			t.Errorf("result %d has %d bytes, want %d", i, len(result), len(results[i]))
		}
	}
}

func TestResultTooLarge(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{MaxAttempts: new(1)})
	sizes := []int{64<<10 + 1, 20 << 20} // more than a result may have, and more than a message
	var ids []string
	for i := range sizes {
		ids = append(ids, f.enqueue(rdq.NewTask{Payload: []byte{byte(i)}}))
	}
	after := f.enqueue(rdq.NewTask{Payload: []byte{2}})
	f.work(rdq.WorkerOptions{Concurrency: 1}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		if i := int(claim.Payload[0]); i < len(sizes) {
			return make([]byte, sizes[i]), nil
		}
		return nil, nil
	})

	for _, id := range ids {
		task := f.ends(id, rdq.StatusDead)
		if len(task.Attempts) != 1 || task.Attempts[0].Error.Type != rdq.TypeOutcomeRefused ||
			task.Attempts[0].Error.Message == "" {
			t.Errorf("the attempts are %+v", task.Attempts)
		}
	}
	f.ends(after, rdq.StatusSucceeded)
}
