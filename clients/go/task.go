package rdq

import (
	"maps"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// TaskStatus says where a task stands. New values may come: treat one that you do not know as "not finished".
type TaskStatus = rdqv1.TaskStatus

// The states of a task.
const (
	// StatusPending waits for its due time or for a worker.
	StatusPending = rdqv1.TaskStatus_TASK_STATUS_PENDING
	// StatusInFlight is claimed; its lease may have run out already.
	StatusInFlight = rdqv1.TaskStatus_TASK_STATUS_IN_FLIGHT
	// StatusSucceeded is terminal: a worker completed it.
	StatusSucceeded = rdqv1.TaskStatus_TASK_STATUS_SUCCEEDED
	// StatusDead is terminal until redriven: the task rests among the dead letters.
	StatusDead = rdqv1.TaskStatus_TASK_STATUS_DEAD
	// StatusCancelled is terminal.
	StatusCancelled = rdqv1.TaskStatus_TASK_STATUS_CANCELLED
)

// AttemptOutcome says how an attempt ended. New values may come: treat one that you do not know as a retryable failure.
type AttemptOutcome = rdqv1.AttemptOutcome

// The outcomes of an attempt.
const (
	// OutcomeSuccess is completed.
	OutcomeSuccess = rdqv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCESS
	// OutcomeRetryableFailure may run again.
	OutcomeRetryableFailure = rdqv1.AttemptOutcome_ATTEMPT_OUTCOME_RETRYABLE_FAILURE
	// OutcomePermanentFailure must not run again.
	OutcomePermanentFailure = rdqv1.AttemptOutcome_ATTEMPT_OUTCOME_PERMANENT_FAILURE
	// OutcomeLeaseExpired lost its lease, and somebody else claimed the task.
	OutcomeLeaseExpired = rdqv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_EXPIRED
	// OutcomeCancelled was cancelled while in flight.
	OutcomeCancelled = rdqv1.AttemptOutcome_ATTEMPT_OUTCOME_CANCELLED
)

// A NewTask is what a producer asks for: the queue, the handler, and all else optional.
type NewTask struct {
	// Queue is required: 1 to 240 bytes of UTF-8 without control characters.
	Queue string
	// HandlerRef is required: which handler of the worker runs the task.
	HandlerRef string
	// HandlerVersion is the version of the handler that the producer means; none if empty.
	HandlerVersion string
	// ID names the task for life, 1 to 255 bytes, unique across the store. If empty, the client makes a ULID, before
	// the first try, so that a repeated try admits nothing twice.
	ID string
	// Payload is what the handler gets; up to 1 MiB, if the queue's configuration says nothing else.
	Payload []byte
	// ContentType says what the payload is, for instance "application/json". Carried, never interpreted.
	ContentType string
	// Headers are carried to the handler; all together at most 64 KiB. Keys that start with "rdq." are the system's.
	Headers map[string]string
	// Priority goes first where it is higher.
	Priority int32
	// Delay is how long after its admission the task is due, by the clock of the server's storage; at once if 0.
	Delay time.Duration
	// DueAt is when the task is due, by the clock of the server's storage; at once if zero. Delay wins over it.
	DueAt time.Time
	// ExpiresIn is how long after its admission an unfinished task is dead, as "rdq.Expired"; never if 0.
	ExpiresIn time.Duration
	// ExpiresAt is when an unfinished task is dead; never if zero. ExpiresIn wins over it.
	ExpiresAt time.Time
	// MaxAttempts is how many attempts the task has; the queue's number if 0.
	MaxAttempts int
	// Lease is that of a claim which names none; the queue's if 0.
	Lease time.Duration
	// InitialBackoff is the wait after the first failed attempt; the queue's if 0.
	InitialBackoff time.Duration
	// RetentionDead is how long the task is kept once dead; the queue's if 0.
	RetentionDead time.Duration
}

// proto makes the task of the contract; an error says what cannot be sent at all.
func (t *NewTask) proto(id string, headers map[string]string) (*rdqv1.Task, error) {
	if err := t.checkText(headers); err != nil {
		return nil, err
	}
	task := &rdqv1.Task{
		Id:                 id,
		Queue:              t.Queue,
		HandlerRef:         t.HandlerRef,
		Payload:            t.Payload,
		PayloadContentType: t.ContentType,
		Headers:            headers,
		Priority:           t.Priority,
		Delay:              optionalDuration(t.Delay),
		NextAttemptAt:      optionalTime(t.DueAt),
		ExpiresIn:          optionalDuration(t.ExpiresIn),
		ExpiresAt:          optionalTime(t.ExpiresAt),
		Lease:              optionalDuration(t.Lease),
		InitialBackoff:     optionalDuration(t.InitialBackoff),
		RetentionDead:      optionalDuration(t.RetentionDead),
	}
	if t.HandlerVersion != "" {
		task.HandlerVersion = &t.HandlerVersion
	}
	if t.MaxAttempts != 0 {
		task.MaxAttempts = new(clampInt32(t.MaxAttempts))
	}
	return task, nil
}

// checkText finds text that is not UTF-8, which protobuf would refuse for the whole request.
func (t *NewTask) checkText(headers map[string]string) error {
	for _, text := range []struct{ field, value string }{
		{"queue", t.Queue}, {"handler_ref", t.HandlerRef}, {"handler_version", t.HandlerVersion}, {"id", t.ID},
		{"payload_content_type", t.ContentType},
	} {
		if !utf8.ValidString(text.value) {
			return invalid(text.field, "`"+text.field+"` is not UTF-8")
		}
	}
	for key, value := range headers {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return invalid("headers", "`headers` has a key or a value that is not UTF-8")
		}
	}
	return nil
}

// A Task is a task as the service knows it. What is not set there is the zero value here.
type Task struct {
	// ID names the task for life.
	ID string
	// Queue is where it is.
	Queue string
	// HandlerRef is which handler runs it.
	HandlerRef string
	// HandlerVersion is the version that the producer meant, empty if it named none.
	HandlerVersion string
	// Payload is what the producer sent.
	Payload []byte
	// ContentType says what the payload is.
	ContentType string
	// Headers are what the producer sent.
	Headers map[string]string
	// Priority goes first where it is higher.
	Priority int32
	// Status is where the task stands.
	Status TaskStatus
	// AttemptCount is how many attempts were spent since the last redrive.
	AttemptCount int
	// RedriveCount is how often it was redriven.
	RedriveCount int
	// LeaseExpiredCount is how many leases ran out and were taken over.
	LeaseExpiredCount int
	// Progress is the last checkpoint of a worker.
	Progress []byte
	// Result is what the handler returned.
	Result []byte
	// MaxAttempts, Lease, InitialBackoff and RetentionDead are the task's own, 0 where the queue's count.
	MaxAttempts    int
	Lease          time.Duration
	InitialBackoff time.Duration
	RetentionDead  time.Duration
	// ClaimedAt and ClaimedBy are of the live claim.
	ClaimedAt time.Time
	ClaimedBy string
	// NextAttemptAt is when it is due; LeaseExpiresAt when the live claim's lease ends; ExpiresAt when it is dead if
	// it is not finished then; CreatedAt and FinishedAt are its beginning and end. By the storage's clock, all of them.
	NextAttemptAt  time.Time
	LeaseExpiresAt time.Time
	ExpiresAt      time.Time
	CreatedAt      time.Time
	FinishedAt     time.Time
	// Attempts is the history, oldest first: whole from Get, without stacks and details in a claim, empty in lists that
	// do not ask for it.
	Attempts []Attempt

	proto *rdqv1.Task
}

// Proto is the message that the task was made of, fields of a newer contract included. Not to be changed.
func (t *Task) Proto() *rdqv1.Task { return t.proto }

// An Attempt is one attempt to run a task.
type Attempt struct {
	// No counts from 1, over redrives.
	No int
	// StartedAt and FinishedAt are by the storage's clock.
	StartedAt  time.Time
	FinishedAt time.Time
	// Outcome says how it ended.
	Outcome AttemptOutcome
	// Error says why it failed, nil for a success.
	Error *AttemptError
	// WorkerID is that of the claim.
	WorkerID string
	// FoldedCount, above 0, says that the record stands for so many attempts.
	FoldedCount int
}

// An AttemptError says why an attempt failed. The service cuts what is too long.
type AttemptError struct {
	// Type is a stable name that the queue's classification matches, for instance "http.503".
	Type string
	// Message is for people.
	Message string
	// Detail is for programs, of any format.
	Detail string
	// Stack is where it happened.
	Stack string
}

func taskOf(proto *rdqv1.Task) *Task {
	task := &Task{
		ID:                proto.GetId(),
		Queue:             proto.GetQueue(),
		HandlerRef:        proto.GetHandlerRef(),
		HandlerVersion:    proto.GetHandlerVersion(),
		Payload:           proto.GetPayload(),
		ContentType:       proto.GetPayloadContentType(),
		Headers:           maps.Clone(proto.GetHeaders()),
		Priority:          proto.GetPriority(),
		Status:            proto.GetStatus(),
		AttemptCount:      int(proto.GetAttemptCount()),
		RedriveCount:      int(proto.GetRedriveCount()),
		LeaseExpiredCount: int(proto.GetLeaseExpiredCount()),
		Progress:          proto.GetProgress(),
		Result:            proto.GetResult(),
		MaxAttempts:       int(proto.GetMaxAttempts()),
		Lease:             proto.GetLease().AsDuration(),
		InitialBackoff:    proto.GetInitialBackoff().AsDuration(),
		RetentionDead:     proto.GetRetentionDead().AsDuration(),
		ClaimedAt:         timeOf(proto.GetClaimedAt()),
		ClaimedBy:         proto.GetClaimedBy(),
		NextAttemptAt:     timeOf(proto.GetNextAttemptAt()),
		LeaseExpiresAt:    timeOf(proto.GetLeaseExpiresAt()),
		ExpiresAt:         timeOf(proto.GetExpiresAt()),
		CreatedAt:         timeOf(proto.GetCreatedAt()),
		FinishedAt:        timeOf(proto.GetFinishedAt()),
		proto:             proto,
	}
	if len(proto.GetAttempts()) > 0 {
		task.Attempts = make([]Attempt, 0, len(proto.GetAttempts()))
	}
	for _, attempt := range proto.GetAttempts() {
		task.Attempts = append(task.Attempts, attemptOf(attempt))
	}
	return task
}

func attemptOf(proto *rdqv1.Attempt) Attempt {
	attempt := Attempt{
		No:          int(proto.GetAttemptNo()),
		StartedAt:   timeOf(proto.GetStartedAt()),
		FinishedAt:  timeOf(proto.GetFinishedAt()),
		Outcome:     proto.GetOutcome(),
		WorkerID:    proto.GetWorkerId(),
		FoldedCount: int(proto.GetFoldedCount()),
	}
	if cause := proto.GetError(); cause != nil {
		attempt.Error = &AttemptError{
			Type: cause.GetType(), Message: cause.GetMessage(), Detail: cause.GetDetail(), Stack: cause.GetStack(),
		}
	}
	return attempt
}

func timeOf(proto *timestamppb.Timestamp) time.Time {
	if proto == nil {
		return time.Time{}
	}
	return proto.AsTime()
}

func optionalTime(instant time.Time) *timestamppb.Timestamp {
	if instant.IsZero() {
		return nil
	}
	return timestamppb.New(instant)
}

func optionalDuration(duration time.Duration) *durationpb.Duration {
	if duration == 0 {
		return nil
	}
	return durationpb.New(duration)
}

// clampInt32 keeps numbers of Go's size within the contract's, where the server refuses or cuts them.
func clampInt32(number int) int32 {
	const limit = 1<<31 - 1
	return int32(max(-limit, min(limit, number)))
}
