package rdq

import (
	"context"
	"fmt"
	"iter"
	"time"

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
		for i, result := range c.enqueueBatch(ctx, batch) {
			results[places[i]] = result
		}
		places = places[len(batch):]
	}
	return results, enqueueManyError(results)
}

func (c *Client) enqueueBatch(ctx context.Context, batch []*rdqv1.Task) []EnqueueResult {
	results := make([]EnqueueResult, len(batch))
	response, err := call(ctx, c, c.tasks.EnqueueBatch, &rdqv1.EnqueueBatchRequest{Tasks: batch})
	if err == nil && len(response.GetResults()) != len(batch) {
		err = malformed(fmt.Sprintf("%d results for %d tasks", len(response.GetResults()), len(batch)))
	}
	for i, task := range batch {
		results[i].ID = task.GetId()
		if err != nil {
			results[i].Err = err
			continue
		}
		switch result := response.GetResults()[i]; {
		case result.GetEnqueued() != nil:
			results[i].Admission = admissionOf(result.GetEnqueued())
		case result.GetError() != nil:
			results[i].Err = itemError(result.GetError())
		default:
			results[i].Err = malformed("a result without an outcome")
		}
	}
	return results
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
