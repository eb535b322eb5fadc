package rdq

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// Get reads one task in any status, with its whole history. [ErrNotFound] if there is none.
func (c *Client) Get(ctx context.Context, id string) (*Task, error) {
	response, err := call(ctx, c, c.tasks.Get, &rdqv1.GetRequest{Id: id})
	if err != nil {
		return nil, err
	}
	return taskOf(response.GetTask()), nil
}

// Cancel ends a task that is pending or in flight, for good: a handler that runs is stopped. It returns the status of the
// task after the call, and whether this call cancelled it; a finished task does not change.
func (c *Client) Cancel(ctx context.Context, id string) (status TaskStatus, cancelled bool, err error) {
	response, err := call(ctx, c, c.tasks.Cancel, &rdqv1.CancelRequest{Id: id})
	if err != nil {
		return 0, false, err
	}
	return response.GetStatus(), response.GetCancelled(), nil
}

// A Page is part of a list.
type Page[Item any] struct {
	// Items are in the list's order.
	Items []Item
	// NextToken asks for the next page; empty on the last.
	NextToken string
}

// ListOptions say which tasks [Client.List] lists.
type ListOptions struct {
	// Status lists only tasks that stand so; all if 0.
	Status TaskStatus
	// IncludeAttempts lists the history too, with stacks and details.
	IncludeAttempts bool
	// PageSize is how many tasks one request asks for, up to 1,000; 50 if 0. A page may have fewer.
	PageSize int
}

// List yields the tasks of a queue, newest admission first, page by page as it goes. It ends after the first error.
func (c *Client) List(ctx context.Context, queue string, options ListOptions) iter.Seq2[*Task, error] {
	return pages(func(token string) (Page[*Task], error) { return c.ListPage(ctx, queue, options, token) })
}

// ListPage returns one page of [Client.List]: the first if pageToken is empty.
func (c *Client) ListPage(ctx context.Context, queue string, options ListOptions, pageToken string) (Page[*Task], error) {
	response, err := call(ctx, c, c.tasks.List, &rdqv1.ListRequest{
		Queue: queue, Status: options.Status, IncludeAttempts: options.IncludeAttempts,
		PageSize: optionalSize(options.PageSize), PageToken: pageToken,
	})
	if err != nil {
		return Page[*Task]{}, err
	}
	return Page[*Task]{tasksOf(response.GetTasks()), response.GetNextPageToken()}, nil
}

// A DLQFilter says which dead letters: what is set must hold, all of it.
type DLQFilter struct {
	// ErrorType is the exact type of the final attempt's error.
	ErrorType string
	// HandlerRef is the exact handler.
	HandlerRef string
	// From is since when they are dead, inclusive; To is before when, exclusive.
	From, To time.Time
}

func (f DLQFilter) proto() *rdqv1.DlqFilter {
	filter := &rdqv1.DlqFilter{DeadLetteredFrom: optionalTime(f.From), DeadLetteredTo: optionalTime(f.To)}
	if f.ErrorType != "" {
		filter.ErrorType = &f.ErrorType
	}
	if f.HandlerRef != "" {
		filter.HandlerRef = &f.HandlerRef
	}
	return filter
}

// DLQListOptions say which dead letters [Client.DLQList] lists.
type DLQListOptions struct {
	// Filter lists only those that match; all if it is the zero value.
	Filter DLQFilter
	// IncludeAttempts lists the history too, with stacks and details.
	IncludeAttempts bool
	// PageSize is how many one request asks for, up to 1,000; 50 if 0. A page may have fewer.
	PageSize int
}

// DLQList yields the dead letters of a queue, newest first, page by page as it goes. It ends after the first error.
func (c *Client) DLQList(ctx context.Context, queue string, options DLQListOptions) iter.Seq2[*Task, error] {
	return pages(func(token string) (Page[*Task], error) { return c.DLQListPage(ctx, queue, options, token) })
}

// DLQListPage returns one page of [Client.DLQList]: the first if pageToken is empty.
func (c *Client) DLQListPage(
	ctx context.Context, queue string, options DLQListOptions, pageToken string,
) (Page[*Task], error) {
	response, err := call(ctx, c, c.tasks.DlqList, &rdqv1.DlqListRequest{
		Queue: queue, Filter: options.Filter.proto(), IncludeAttempts: options.IncludeAttempts,
		PageSize: optionalSize(options.PageSize), PageToken: pageToken,
	})
	if err != nil {
		return Page[*Task]{}, err
	}
	return Page[*Task]{tasksOf(response.GetTasks()), response.GetNextPageToken()}, nil
}

// A Selector says which dead letters to act on. Make one with [SelectIDs], [SelectFilter] or [SelectAll]: the zero value
// selects nothing and is refused.
type Selector struct {
	proto *rdqv1.Selector
}

// SelectIDs selects these tasks, up to 1,000; those that are not dead letters of the queue are passed over.
func SelectIDs(ids ...string) Selector {
	return Selector{&rdqv1.Selector{Selection: &rdqv1.Selector_Ids{Ids: &rdqv1.TaskIds{Ids: ids}}}}
}

// SelectFilter selects those that match. A filter that constrains nothing is refused.
func SelectFilter(filter DLQFilter) Selector {
	return Selector{&rdqv1.Selector{Selection: &rdqv1.Selector_Filter{Filter: filter.proto()}}}
}

// SelectAll selects every dead letter of the queue.
func SelectAll() Selector {
	return Selector{&rdqv1.Selector{Selection: &rdqv1.Selector_All{All: true}}}
}

// RedriveOptions say how [Client.Redrive] goes about it. The zero value makes all due now.
type RedriveOptions struct {
	// DryRun counts and changes nothing.
	DryRun bool
	// SpreadOver spreads the due times evenly, against a thundering herd.
	SpreadOver time.Duration
	// RatePerSecond spaces the due times to so many tasks a second. Not together with SpreadOver.
	RatePerSecond float64
	// Progress, if set, is called with the running count.
	Progress func(count int64)
}

// Redrive makes dead letters pending again, with all their attempts ahead of them and their history kept. It returns how
// many; with an error, how many it heard of before. It is repeated only until its first answer.
func (c *Client) Redrive(ctx context.Context, queue string, selector Selector, options RedriveOptions) (int64, error) {
	request := &rdqv1.RedriveRequest{
		Queue: queue, Selector: selector.proto, DryRun: options.DryRun, SpreadOver: optionalDuration(options.SpreadOver),
	}
	if options.RatePerSecond != 0 {
		request.RatePerSecond = &options.RatePerSecond
	}
	return count(ctx, c, c.tasks.Redrive, request, options.Progress)
}

// PurgeOptions say how [Client.Purge] goes about it.
type PurgeOptions struct {
	// DryRun counts and changes nothing.
	DryRun bool
	// Progress, if set, is called with the running count.
	Progress func(count int64)
}

// Purge removes dead letters for good. It returns how many; with an error, how many it heard of before. It is repeated
// only until its first answer.
func (c *Client) Purge(ctx context.Context, queue string, selector Selector, options PurgeOptions) (int64, error) {
	request := &rdqv1.PurgeRequest{Queue: queue, Selector: selector.proto, DryRun: options.DryRun}
	return count(ctx, c, c.tasks.Purge, request, options.Progress)
}

// QueueStats count the tasks of a queue, at one instant of the storage's clock.
type QueueStats struct {
	// Queue is the queue.
	Queue string
	// Pending are Ready, which are due, and Delayed, which are due later.
	Pending, Ready, Delayed int64
	// InFlight are claimed. Of these, Lapsed have a lease that ran out, and nobody claimed them again yet.
	InFlight, Lapsed int64
	// DLQDepth are the dead letters.
	DLQDepth int64
	// Succeeded and Cancelled are kept until their retention ends.
	Succeeded, Cancelled int64
	// OldestPendingAge is how long the oldest due task has been due; 0 if none is.
	OldestPendingAge time.Duration
}

// Stats counts the tasks of up to 64 queues, or of all that the service knows, up to 1,000, if none is named. A queue
// that it does not know has zeroes.
func (c *Client) Stats(ctx context.Context, queues ...string) ([]QueueStats, error) {
	response, err := call(ctx, c, c.tasks.Stats, &rdqv1.StatsRequest{Queues: queues})
	if err != nil {
		return nil, err
	}
	stats := make([]QueueStats, 0, len(response.GetQueues()))
	for _, each := range response.GetQueues() {
		stats = append(stats, QueueStats{
			Queue:            each.GetQueue(),
			Pending:          each.GetPending(),
			Ready:            each.GetReady(),
			Delayed:          each.GetDelayed(),
			InFlight:         each.GetInFlight(),
			Lapsed:           each.GetLapsed(),
			DLQDepth:         each.GetDlqDepth(),
			Succeeded:        each.GetSucceeded(),
			Cancelled:        each.GetCancelled(),
			OldestPendingAge: each.GetOldestPendingAge().AsDuration(),
		})
	}
	return stats, nil
}

// pages yields the items of all pages.
func pages[Item any](page func(token string) (Page[Item], error)) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for token := ""; ; {
			current, err := page(token)
			if err != nil {
				var none Item
				yield(none, err)
				return
			}
			for _, item := range current.Items {
				if !yield(item, nil) {
					return
				}
			}
			if token = current.NextToken; token == "" {
				return
			}
		}
	}
}

// A counted message has the running count of a long operation.
type counted interface {
	GetCount() int64
	GetDone() bool
}

// count runs an operation that streams its running count.
func count[Request any, Response any, Message interface {
	*Response
	counted
}](
	ctx context.Context, c *Client,
	method func(context.Context, *Request, ...grpc.CallOption) (grpc.ServerStreamingClient[Response], error),
	request *Request, progress func(int64),
) (int64, error) {
	streaming, end := context.WithCancel(ctx)
	defer func() { end() }()
	var stream grpc.ServerStreamingClient[Response]
	var message Message
	err := c.retry(ctx, func(try context.Context) error {
		end() // what a try before left
		streaming, end = context.WithCancel(ctx)
		// Until the first message the time of the try counts, then that of the caller.
		unlink := context.AfterFunc(try, end)
		var err error
		if stream, err = method(streaming, request); err == nil {
			message, err = stream.Recv()
		}
		if !unlink() && try.Err() != nil {
			return try.Err()
		}
		return err
	})
	var total int64
	for err == nil {
		total = message.GetCount()
		if progress != nil {
			progress(total)
		}
		if message.GetDone() {
			return total, nil
		}
		var failure error
		if message, failure = stream.Recv(); failure != nil {
			err = streamError(ctx, failure)
		}
	}
	return total, err
}

func streamError(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		return malformed("no end")
	}
	if ctx.Err() != nil {
		return contextError(ctx, FromError(err))
	}
	return FromError(err)
}

func tasksOf(protos []*rdqv1.Task) []*Task {
	tasks := make([]*Task, 0, len(protos))
	for _, proto := range protos {
		tasks = append(tasks, taskOf(proto))
	}
	return tasks
}

func optionalSize(size int) *int32 {
	if size == 0 {
		return nil
	}
	return new(clampInt32(size))
}
