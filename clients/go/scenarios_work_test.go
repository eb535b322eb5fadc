package rdq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

var _ sync.Mutex
