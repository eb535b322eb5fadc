package rdq

import (
	"context"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	// batchTasksMax is what the contract takes in one EnqueueBatch.
	batchTasksMax = 1_000
	// batchBytesMax is well below what the server reads at once, so that one request does not hold up others for long.
	batchBytesMax = 3 << 20
)

// An Admission says that a task is stored.
type Admission struct {
	// ID is the task's: the caller's, or the one that the client made.
	ID string
	// Created is false if the task was there already. A repeated try of the same call may find what the first one
	// stored.
	Created bool
	// Status is the task's now.
	Status TaskStatus
}

// An EnqueueResult is what became of one task of [Client.EnqueueMany].
type EnqueueResult struct {
	Admission
	// Err says why the task was refused, nil if it was admitted. The ID of the Admission is set in both cases.
	Err error
}

// Enqueue admits one task. It can be called again for the same ID: a task that is there already is left as it is, and
// the answer says so. The same ID in another queue is [ErrIDConflict].
func (c *Client) Enqueue(ctx context.Context, task NewTask) (Admission, error) {
	message, err := admissible(ctx, &task)
	if err != nil {
		return Admission{}, err
	}
	response, err := call(ctx, c, c.tasks.Enqueue, &rdqv1.EnqueueRequest{Task: message})
	if err != nil {
		return Admission{}, err
	}
	return admissionOf(response), nil
}

// EnqueueMany admits many tasks, in requests of at most 1,000 tasks and 3 MiB, one after the other. It answers for each
// task, in order. One that is refused does not hold back the others; the error is nil if every task was admitted, and
// an [*EnqueueManyError] otherwise.
//
// [ClientOptions].Deadline bounds each request, with the repetitions of what was refused for the moment. A server that
// stays out of reach for so long ends the call: that error is the answer for all tasks that are left.
func (c *Client) EnqueueMany(ctx context.Context, tasks []NewTask) ([]EnqueueResult, error) {
	results := make([]EnqueueResult, len(tasks))
	messages := make([]*rdqv1.Task, 0, len(tasks))
	places := make([]int, 0, len(tasks))
	for i := range tasks {
		message, err := admissible(ctx, &tasks[i])
		if err != nil {
			results[i] = EnqueueResult{Admission{ID: tasks[i].ID}, err}
			continue
		}
		results[i].ID = message.GetId()
		messages, places = append(messages, message), append(places, i)
	}
	for batch := range batches(messages, batchTasksMax, batchBytesMax) {
		answers, gone := c.enqueueBatch(ctx, batch)
		for i, result := range answers {
			results[places[i]] = result
		}
		places = places[len(batch):]
		if gone != nil {
			for _, place := range places {
				results[place].Err = gone
			}
			break
		}
	}
	return results, enqueueManyError(results)
}

// enqueueBatch admits the tasks of one request, and repeats those that were refused for the moment. The error is not nil
// if the next request need not be tried: the server stays out of reach, or the caller's context ended.
func (c *Client) enqueueBatch(ctx context.Context, batch []*rdqv1.Task) ([]EnqueueResult, *Error) {
	results, pending := make([]EnqueueResult, len(batch)), make([]int, len(batch))
	for i, task := range batch {
		results[i].ID, pending[i] = task.GetId(), i
	}
	tasks, isWhole := batch, true
	failure := c.retry(ctx, func(ctx context.Context) error {
		isWhole = true
		response, err := c.tasks.EnqueueBatch(ctx, &rdqv1.EnqueueBatchRequest{Tasks: tasks})
		if err != nil {
			return err
		}
		isWhole = false
		var again []int
		tasks = nil
		for i, place := range pending {
			var result *rdqv1.EnqueueResult
			if i < len(response.GetResults()) {
				result = response.GetResults()[i]
			}
			admission, refusal := enqueued(result)
			if refusal == nil {
				results[place] = EnqueueResult{Admission: admission}
				continue
			}
			results[place].Err = refusal
			if repeatable(refusal) {
				again, tasks, err = append(again, place), append(tasks, batch[place]), refusal
			}
		}
		pending = again
		return err
	})
	if failure == nil {
		return results, nil
	}
	for _, place := range pending {
		if isWhole || ctx.Err() != nil || results[place].Err == nil {
			results[place].Err = failure
		}
	}
	refusal := FromError(failure)
	switch {
	case ctx.Err() != nil, isWhole && refusal.Retryable(), refusal.Code == codes.Unavailable && len(pending) == len(batch):
		return results, refusal
	default:
		return results, nil
	}
}

// enqueued is the answer for one task of a batch.
func enqueued(result *rdqv1.EnqueueResult) (Admission, *Error) {
	switch {
	case result.GetEnqueued() != nil:
		return admissionOf(result.GetEnqueued()), nil
	case result.GetError() != nil:
		return Admission{}, itemError(result.GetError())
	default:
		return Admission{}, malformed("no result for this task")
	}
}

// admissible makes the message of a task, with an id and with the caller's trace.
func admissible(ctx context.Context, task *NewTask) (*rdqv1.Task, error) {
	id := task.ID
	if id == "" {
		id = newID(time.Now())
	}
	return task.proto(id, traceHeaders(ctx, task.Headers))
}

func admissionOf(response *rdqv1.EnqueueResponse) Admission {
	return Admission{ID: response.GetId(), Created: response.GetCreated(), Status: response.GetStatus()}
}

// batches cuts messages, in order, into runs of at most so many items and encoded bytes. One that is larger by itself
// goes alone.
func batches[Message proto.Message](messages []Message, itemsMax, bytesMax int) iter.Seq[[]Message] {
	return func(yield func([]Message) bool) {
		start, bytes := 0, 0
		for i, message := range messages {
			// A field of a message: its tag, its length and itself.
			size := 1 + protowire.SizeBytes(proto.Size(message))
			if i > start && (i-start == itemsMax || bytes+size > bytesMax) {
				if !yield(messages[start:i:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += size
		}
		if start < len(messages) {
			yield(messages[start:])
		}
	}
}

// An EnqueueManyError says that some tasks of [Client.EnqueueMany] were not admitted. errors.Is and errors.As look into
// the refusal of each.
type EnqueueManyError struct {
	// Failures are the refusals, in order.
	Failures []error
	// Total is the number of tasks of the call.
	Total int
}

// Error returns the count and the first refusal.
func (e *EnqueueManyError) Error() string {
	return fmt.Sprintf("rdq: %d of %d tasks were not admitted; the first: %v", len(e.Failures), e.Total, e.Failures[0])
}

// Unwrap returns the refusals.
func (e *EnqueueManyError) Unwrap() []error { return e.Failures }

func enqueueManyError(results []EnqueueResult) error {
	var failures []error
	for i := range results {
		if results[i].Err != nil {
			failures = append(failures, results[i].Err)
		}
	}
	if failures == nil {
		return nil
	}
	return &EnqueueManyError{Failures: failures, Total: len(results)}
}
