package rdq

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// A QueueConfig is the configuration of a queue. What is nil, or empty, is inherited: from the server's file for the
// queue, then from its defaults, then from the values named here. Set a field with new: MaxAttempts: new(3).
type QueueConfig struct {
	// MaxAttempts is how many attempts a task has; 5, at least 1.
	MaxAttempts *int
	// InitialBackoff is the wait after the first failed attempt; 1 second, above 0.
	InitialBackoff *time.Duration
	// Multiplier is by how much the wait grows with each attempt; 2, from 1 to 1,000.
	Multiplier *float64
	// MaxBackoff is the longest wait; 10 minutes, above 0.
	MaxBackoff *time.Duration
	// Jitter is how much a wait varies, as a part of it; 0.2, from 0 to 1.
	Jitter *float64

	// Retryable are globs of error types that may run again, Permanent of those that may not; up to 100 of each.
	// Permanent goes first, and what matches nothing is retryable.
	Retryable, Permanent []string

	// Lease is how long a claim is held where neither the claim nor the task says; 60 seconds, from 10 milliseconds to
	// 12 hours.
	Lease *time.Duration
	// Timeout is how long a claim is held at the most; no bound by default, above 0.
	Timeout *time.Duration
	// StrictLeases refuses every call under a lease that ran out, whether somebody claimed the task since or not.
	StrictLeases *bool

	// MaxPayloadBytes is the largest payload; 1 MiB, up to 2 MiB.
	MaxPayloadBytes *int64

	// RetentionSucceeded, RetentionCancelled and RetentionDead are how long finished tasks are kept: 24 hours, 24 hours,
	// for ever. 0 is not at all.
	RetentionSucceeded, RetentionCancelled, RetentionDead *time.Duration

	// VersionMismatch is what workers do with a task whose version of the handler they do not have.
	VersionMismatch VersionMismatch

	// Paused stops claims; admission goes on.
	Paused *bool
}

// VersionMismatch is what a worker does with a task whose version of the handler it does not have.
type VersionMismatch = rdqv1.HandlerVersionMismatch

// The ways to treat a task whose version of the handler is not there.
const (
	// RunLatest runs the version at hand. It is the default.
	RunLatest = rdqv1.HandlerVersionMismatch_HANDLER_VERSION_MISMATCH_RUN_LATEST
	// DeadLetter makes the task a dead letter, as "rdq.VersionMismatch".
	DeadLetter = rdqv1.HandlerVersionMismatch_HANDLER_VERSION_MISMATCH_DEAD_LETTER
)

// A Queue is a queue and its configuration.
type Queue struct {
	// Name is its name.
	Name string
	// Config is what is stored, nil if nothing is.
	Config *QueueConfig
	// Effective is what is in force.
	Effective QueueConfig
	// UpdatedAt is when the configuration was stored, zero if it is not.
	UpdatedAt time.Time
}

// PutQueue stores the configuration of a queue, in place of what was stored before.
func (c *Client) PutQueue(ctx context.Context, name string, config QueueConfig) (*Queue, error) {
	response, err := call(ctx, c, c.queues.PutQueue, &rdqv1.PutQueueRequest{Name: name, Config: config.proto()})
	if err != nil {
		return nil, err
	}
	return queueOf(response.GetQueue()), nil
}

// GetQueue reads the configuration of a queue. One that nobody configured has the defaults, unless the server demands
// declaration: then [ErrQueueNotFound].
func (c *Client) GetQueue(ctx context.Context, name string) (*Queue, error) {
	response, err := call(ctx, c, c.queues.GetQueue, &rdqv1.GetQueueRequest{Name: name})
	if err != nil {
		return nil, err
	}
	return queueOf(response.GetQueue()), nil
}

// ListQueuesOptions say how [Client.ListQueues] goes about it.
type ListQueuesOptions struct {
	// PageSize is how many queues one request asks for, up to 1,000; 50 if 0. A page may have fewer.
	PageSize int
}

// ListQueues yields the queues that are configured or hold tasks, by name. It ends after the first error.
func (c *Client) ListQueues(ctx context.Context, options ListQueuesOptions) iter.Seq2[*Queue, error] {
	return pages(func(token string) (Page[*Queue], error) { return c.ListQueuesPage(ctx, options, token) })
}

// ListQueuesPage returns one page of [Client.ListQueues]: the first if pageToken is empty.
func (c *Client) ListQueuesPage(ctx context.Context, options ListQueuesOptions, pageToken string) (Page[*Queue], error) {
	response, err := call(ctx, c, c.queues.ListQueues, &rdqv1.ListQueuesRequest{
		PageSize: optionalSize(options.PageSize), PageToken: pageToken,
	})
	if err != nil {
		return Page[*Queue]{}, err
	}
	page := Page[*Queue]{NextToken: response.GetNextPageToken()}
	for _, queue := range response.GetQueues() {
		page.Items = append(page.Items, queueOf(queue))
	}
	return page, nil
}

// DeleteQueue removes the stored configuration of a queue that holds no task, and reports whether there was one. Else
// [ErrQueueNotEmpty].
func (c *Client) DeleteQueue(ctx context.Context, name string) (existed bool, err error) {
	response, err := call(ctx, c, c.queues.DeleteQueue, &rdqv1.DeleteQueueRequest{Name: name})
	if err != nil {
		return false, err
	}
	return response.GetExisted(), nil
}

// PauseQueue stops claims from a queue; admission goes on.
func (c *Client) PauseQueue(ctx context.Context, name string) (*Queue, error) {
	response, err := call(ctx, c, c.queues.PauseQueue, &rdqv1.PauseQueueRequest{Name: name})
	if err != nil {
		return nil, err
	}
	return queueOf(response.GetQueue()), nil
}

// ResumeQueue lets claims go on.
func (c *Client) ResumeQueue(ctx context.Context, name string) (*Queue, error) {
	response, err := call(ctx, c, c.queues.ResumeQueue, &rdqv1.ResumeQueueRequest{Name: name})
	if err != nil {
		return nil, err
	}
	return queueOf(response.GetQueue()), nil
}

func (q *QueueConfig) proto() *rdqv1.QueueConfig {
	var maxAttempts *int32
	if q.MaxAttempts != nil {
		maxAttempts = new(clampInt32(*q.MaxAttempts))
	}
	return &rdqv1.QueueConfig{
		Retry: &rdqv1.RetryConfig{
			MaxAttempts: maxAttempts, InitialBackoff: durationProto(q.InitialBackoff), Multiplier: q.Multiplier,
			MaxBackoff: durationProto(q.MaxBackoff), Jitter: q.Jitter,
		},
		Classification: &rdqv1.ClassificationConfig{Retryable: q.Retryable, Permanent: q.Permanent},
		Execution: &rdqv1.ExecutionConfig{
			Lease: durationProto(q.Lease), Timeout: durationProto(q.Timeout), StrictLeases: q.StrictLeases,
		},
		Limits: &rdqv1.LimitsConfig{MaxPayloadBytes: q.MaxPayloadBytes},
		Retention: &rdqv1.RetentionConfig{
			Succeeded: durationProto(q.RetentionSucceeded), Cancelled: durationProto(q.RetentionCancelled),
			Dead: durationProto(q.RetentionDead),
		},
		Handler: &rdqv1.HandlerConfig{VersionMismatch: q.VersionMismatch},
		Paused:  q.Paused,
	}
}

func queueConfigOf(proto *rdqv1.QueueConfig) *QueueConfig {
	config := &QueueConfig{
		InitialBackoff:     durationOf(proto.GetRetry().GetInitialBackoff()),
		MaxBackoff:         durationOf(proto.GetRetry().GetMaxBackoff()),
		Retryable:          proto.GetClassification().GetRetryable(),
		Permanent:          proto.GetClassification().GetPermanent(),
		Lease:              durationOf(proto.GetExecution().GetLease()),
		Timeout:            durationOf(proto.GetExecution().GetTimeout()),
		RetentionSucceeded: durationOf(proto.GetRetention().GetSucceeded()),
		RetentionCancelled: durationOf(proto.GetRetention().GetCancelled()),
		RetentionDead:      durationOf(proto.GetRetention().GetDead()),
		VersionMismatch:    proto.GetHandler().GetVersionMismatch(),
	}
	if retry := proto.GetRetry(); retry != nil {
		config.Multiplier, config.Jitter = retry.Multiplier, retry.Jitter
		if retry.MaxAttempts != nil {
			config.MaxAttempts = new(int(retry.GetMaxAttempts()))
		}
	}
	if execution := proto.GetExecution(); execution != nil {
		config.StrictLeases = execution.StrictLeases
	}
	if limits := proto.GetLimits(); limits != nil {
		config.MaxPayloadBytes = limits.MaxPayloadBytes
	}
	if proto != nil {
		config.Paused = proto.Paused
	}
	return config
}

func queueOf(proto *rdqv1.Queue) *Queue {
	queue := &Queue{
		Name:      proto.GetName(),
		Effective: *queueConfigOf(proto.GetEffective()),
		UpdatedAt: timeOf(proto.GetUpdatedAt()),
	}
	if stored := proto.GetConfig(); stored != nil {
		queue.Config = queueConfigOf(stored)
	}
	return queue
}

func durationProto(duration *time.Duration) *durationpb.Duration {
	if duration == nil {
		return nil
	}
	return durationpb.New(*duration)
}

func durationOf(proto *durationpb.Duration) *time.Duration {
	if proto == nil {
		return nil
	}
	return new(proto.AsDuration())
}
