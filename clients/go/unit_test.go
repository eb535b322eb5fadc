package rdq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 6: 3200 * time.Millisecond, 7: 5 * time.Second,
		1_000_000: 5 * time.Second,
	} {
		if got := callBackoff.ceiling(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
	short, long := false, false
	for range 1_000 {
		wait := callBackoff.wait(3)
		if wait < 0 || wait > 400*time.Millisecond {
			t.Fatalf("a wait of %s", wait)
		}
		short, long = short || wait < 200*time.Millisecond, long || wait > 200*time.Millisecond
	}
	if !short || !long {
		t.Error("the jitter is not full")
	}
}

func TestIDsAreULIDs(t *testing.T) {
	// The time of the specification's own example.
	if id := newID(time.UnixMilli(1_469_918_176_385)); !strings.HasPrefix(id, "01ARYZ6S41") || len(id) != 26 {
		t.Errorf("the id is %q", id)
	}
	now := time.Now()
	if first, second := newID(now), newID(now); first == second || first[:10] != second[:10] {
		t.Errorf("two ids of one millisecond are %q and %q", first, second)
	}
	if id := newID(time.UnixMilli(1<<48 - 1)); !strings.HasPrefix(id, "7ZZZZZZZZZ") {
		t.Errorf("the last id of all is %q", id)
	}
}

func TestBatchesAreCutByItemsAndBytes(t *testing.T) {
	sized := func(size int) *rdqv1.Task { return &rdqv1.Task{Payload: make([]byte, size)} }
	for name, each := range map[string]struct {
		sizes []int
		want  []int
	}{
		"none":               {nil, nil},
		"one":                {[]int{1}, []int{1}},
		"as many as allowed": {[]int{1, 1, 1}, []int{3}},
		"one item more":      {[]int{1, 1, 1, 1}, []int{3, 1}},
		"too many bytes":     {[]int{60, 60, 1, 1}, []int{1, 3}},
		"one larger than a request": {
			[]int{1, 200, 1}, []int{1, 1, 1},
		},
	} {
		var messages []*rdqv1.Task
		for _, size := range each.sizes {
			messages = append(messages, sized(size))
		}
		var got []int
		var back []*rdqv1.Task
		for batch := range batches(messages, 3, 100) {
			got, back = append(got, len(batch)), append(back, batch...)
			if bytes := proto.Size(&rdqv1.EnqueueBatchRequest{Tasks: batch}); len(batch) > 1 && bytes > 100 {
				t.Errorf("%s: a request of %d bytes", name, bytes)
			}
		}
		if !slices.Equal(got, each.want) || !slices.Equal(back, messages) {
			t.Errorf("%s: cut into %v, want %v", name, got, each.want)
		}
	}
}

func refusal(code codes.Code, reason Reason, metadata map[string]string, retryDelay time.Duration) error {
	answer, err := status.New(code, "refused").WithDetails(
		&errdetails.ErrorInfo{Reason: string(reason), Domain: errorDomain, Metadata: metadata},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(retryDelay)},
	)
	if err != nil {
		panic(err)
	}
	return answer.Err()
}

func TestEveryReasonOfTheContractHasAName(t *testing.T) {
	known := []Reason{
		ErrStaleClaim, ErrQueueNotEmpty, ErrStaleCursor, ErrNotFound, ErrQueueNotFound, ErrIDConflict, ErrContention,
		ErrInvalidName, ErrReservedName, ErrInvalidArgument, ErrInvalidCursor, ErrCursorBindingMismatch,
		ErrPayloadTooLarge, ErrUnsupported, ErrStorageUnavailable, ErrClosed, ErrOverloaded, ErrStorageFull,
		ErrMessageTooLarge, ErrInternal, ErrUnauthenticated, ErrPermissionDenied, ErrDeadlineExceeded,
		ErrCASConflict, ErrInvalidSpec, ErrOutboxMissing, ErrOutboxClaimMismatch, ErrMutationConflict,
	}
	for number, name := range rdqv1.ErrorReason_name {
		item := itemError(&rdqv1.ItemError{Code: 9, Reason: rdqv1.ErrorReason(number)})
		if number == 0 {
			if item.Reason != "" {
				t.Errorf("no reason is %q", string(item.Reason))
			}
			continue
		}
		if !slices.Contains(known, item.Reason) || "ERROR_REASON_"+string(item.Reason) != name {
			t.Errorf("%s has no name here", name)
		}
	}
	if len(known) != len(rdqv1.ErrorReason_name)-1 {
		t.Errorf("%d names for %d reasons", len(known), len(rdqv1.ErrorReason_name)-1)
	}
}

func TestErrorsKeepWhatTheServiceSaid(t *testing.T) {
	got := FromError(refusal(codes.ResourceExhausted, ErrOverloaded, map[string]string{"k": "v"}, 3*time.Second))
	if got.Code != codes.ResourceExhausted || got.Reason != ErrOverloaded || got.Message != "refused" ||
		got.Metadata["k"] != "v" || got.RetryAfter != 3*time.Second || got.OutcomeUnknown() || !got.Retryable() {
		t.Errorf("%+v", got)
	}
	back := FromError(got.GRPCStatus().Err())
	if back.Reason != got.Reason || back.Metadata["k"] != "v" {
		t.Errorf("and back: %+v", back)
	}
	if FromError(nil) != nil {
		t.Error("nil does not stay nil")
	}
	if lost := FromError(status.Error(codes.Unavailable, "connection lost")); !lost.OutcomeUnknown() || lost.Reason != "" {
		t.Errorf("of the transport: %+v", lost)
	}
	foreign, _ := status.New(codes.NotFound, "x").WithDetails(&errdetails.ErrorInfo{Reason: "NOT_FOUND", Domain: "other"})
	if errors.Is(FromError(foreign.Err()), ErrNotFound) {
		t.Error("the reason of another domain is taken for ours")
	}
	unknown := map[string]string{"outcome_unknown": "true"}
	if !FromError(refusal(codes.Internal, ErrInternal, unknown, 0)).OutcomeUnknown() {
		t.Error("outcome_unknown is lost")
	}
}

func TestRetriesFollowTheTable(t *testing.T) {
	unknown := map[string]string{"outcome_unknown": "true"}
	for name, each := range map[string]struct {
		err   error
		tries int
	}{
		"unavailable":                {refusal(codes.Unavailable, ErrStorageUnavailable, nil, 0), 3},
		"unavailable, maybe done":    {refusal(codes.Unavailable, ErrStorageUnavailable, unknown, 0), 3},
		"closed":                     {refusal(codes.Unavailable, ErrClosed, nil, 0), 3},
		"of the transport":           {status.Error(codes.Unavailable, "no connection"), 3},
		"contention":                 {refusal(codes.Aborted, ErrContention, nil, 0), 3},
		"aborted for another reason": {status.Error(codes.Aborted, ""), 1},
		"overloaded":                 {refusal(codes.ResourceExhausted, ErrOverloaded, nil, time.Millisecond), 3},
		"storage full":               {refusal(codes.ResourceExhausted, ErrStorageFull, nil, 0), 1},
		"message too large":          {refusal(codes.ResourceExhausted, ErrMessageTooLarge, nil, 0), 1},
		"invalid":                    {refusal(codes.InvalidArgument, ErrInvalidName, nil, 0), 1},
		"stale":                      {refusal(codes.FailedPrecondition, ErrStaleClaim, nil, 0), 1},
		"internal":                   {refusal(codes.Internal, ErrInternal, unknown, 0), 1},
		"the server's own deadline":  {refusal(codes.DeadlineExceeded, ErrDeadlineExceeded, unknown, 0), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := NewClientFromConn(nil, ClientOptions{Deadline: time.Minute})
			tries := 0
			err := client.retry(t.Context(), func(context.Context) error {
				if tries++; tries < 3 {
					return each.err
				}
				return nil
			})
			if tries != each.tries || (err == nil) != (each.tries == 3) {
				t.Errorf("%d tries, then %v", tries, err)
			}
		})
	}
}

func TestNoTryBeginsThatCannotEndInTime(t *testing.T) {
	client := NewClientFromConn(nil, ClientOptions{Deadline: time.Minute})
	tries := 0
	err := client.retry(t.Context(), func(context.Context) error {
		tries++
		return refusal(codes.ResourceExhausted, ErrOverloaded, nil, time.Hour)
	})
	if tries != 1 || !errors.Is(err, ErrOverloaded) {
		t.Errorf("%d tries, then %v", tries, err)
	}
}

func TestTheCallersContextEndsACall(t *testing.T) {
	client := NewClientFromConn(nil, ClientOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	err := client.retry(ctx, func(context.Context) error {
		cancel()
		return status.Error(codes.Unavailable, "the last words")
	})
	var failure *Error
	if !errors.Is(err, context.Canceled) || !errors.As(err, &failure) || failure.Code != codes.Canceled ||
		!failure.OutcomeUnknown() || !strings.Contains(err.Error(), "the last words") {
		t.Errorf("the error is %v", err)
	}
}

func TestLeasesSayWhatIsLeft(t *testing.T) {
	arrived := time.Now()
	claimed := func(length, remaining time.Duration) *rdqv1.ClaimedTask {
		from := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // of a storage whose clock is far away
		return &rdqv1.ClaimedTask{
			Task: &rdqv1.Task{
				ClaimedAt: timestamppb.New(from), LeaseExpiresAt: timestamppb.New(from.Add(length)),
			},
			LeaseRemaining: durationpb.New(remaining),
		}
	}
	for _, each := range []struct {
		length, margin time.Duration
	}{
		{time.Minute, 6 * time.Second},
		{time.Second, 100 * time.Millisecond},
		{300 * time.Millisecond, 100 * time.Millisecond},
		{100 * time.Millisecond, 50 * time.Millisecond},
		{10 * time.Millisecond, 5 * time.Millisecond},
	} {
		lease := leaseOf(claimed(each.length, each.length), arrived)
		if lease.length != each.length || lease.margin() != each.margin {
			t.Errorf("a lease of %s: length %s, margin %s, want %s", each.length, lease.length, lease.margin(), each.margin)
		}
		if lease.allButGone(arrived) || lease.allButGone(arrived.Add(each.length-each.margin)) {
			t.Errorf("a lease of %s is gone too soon", each.length)
		}
		if !lease.allButGone(arrived.Add(each.length - each.margin + 1)) {
			t.Errorf("a lease of %s lasts too long", each.length)
		}
	}
	late := leaseOf(claimed(time.Minute, time.Second), arrived)
	if late.length != time.Minute || !late.allButGone(arrived) || !late.ends.Equal(arrived.Add(time.Second)) {
		t.Errorf("a claim that was long on its way: %+v", late)
	}
	for timeout, want := range map[time.Duration]time.Duration{
		2 * time.Minute:  time.Minute, // of which 59 s are spent, and a second is for the failure
		60 * time.Second: 0,
		30 * time.Second: -30 * time.Second,
	} {
		if left := late.stopAt(timeout).Sub(arrived); left != want {
			t.Errorf("of a timeout of %s %s are left, want %s", timeout, left, want)
		}
	}
	fresh := leaseOf(claimed(time.Second, time.Second), arrived)
	if left := fresh.stopAt(time.Second).Sub(arrived); left != 900*time.Millisecond {
		t.Errorf("of a timeout of a second %s are left", left)
	}
}

// outcomesUnderWay is a worker, and a carrier that has the outcomes of so many claims.
func outcomesUnderWay(count int) (*Worker, *carrier) {
	worker, c := NewWorker(NewClientFromConn(nil, ClientOptions{}), WorkerOptions{}), newCarrier()
	for seq := range int64(count) {
		d := &delivery{seq: seq + 1, id: fmt.Sprint("t-", seq), claim: &Claim{}}
		worker.work.bySeq[d.seq] = d
		worker.decide(d, releaseResolution(d.id, nil, 0))
	}
	worker.takeOutcomes(c)
	return worker, c
}

func TestOutcomesWaitAsLongAsTheServerAsks(t *testing.T) {
	now := time.Now()
	worker, c := outcomesUnderWay(2)
	refused := FromError(refusal(codes.ResourceExhausted, ErrOverloaded, nil, time.Minute))
	worker.abandon(c, now, true, refused)
	for _, d := range worker.work.bySeq {
		if wait := d.outcome.notBefore.Sub(now); wait < time.Minute {
			t.Errorf("%s is sent again after %s", d.id, wait)
		}
	}
	worker.collectDue(now.Add(59 * time.Second))
	if taken := worker.takeOutcomes(c); len(taken) != 0 {
		t.Errorf("%d outcomes are sent too soon", len(taken))
	}
	worker.collectDue(now.Add(61 * time.Second))
	if taken := worker.takeOutcomes(c); len(taken) != 2 {
		t.Errorf("%d outcomes are sent again", len(taken))
	}
}

func TestOutcomesGoAloneAfterARequestWasRefusedForItsContent(t *testing.T) {
	for reason, alone := range map[Reason]int{
		ErrInvalidArgument: 3, ErrMessageTooLarge: 3, ErrPayloadTooLarge: 3, ErrInternal: 0, ErrOverloaded: 0,
	} {
		now := time.Now()
		worker, c := outcomesUnderWay(3)
		worker.abandon(c, now, true, FromError(refusal(codes.InvalidArgument, reason, nil, 0)))
		worker.collectDue(now.Add(time.Second))
		if got := len(worker.work.alone); got != alone || len(worker.work.outbox) != 3-alone {
			t.Errorf("after %s %d outcomes go alone, %d together", reason, got, len(worker.work.outbox))
		}
	}
}

func TestAWorkerThatCannotWorkSaysSoAtOnce(t *testing.T) {
	handler := func(context.Context, *Claim) ([]byte, error) { return nil, nil }
	for _, concurrency := range []int{-1, 10_001} {
		options := WorkerOptions{Queues: []string{"q"}, Concurrency: concurrency}
		worker := NewWorker(NewClientFromConn(nil, ClientOptions{}), options)
		worker.Handle("h", handler)
		if err := worker.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "concurrency") {
			t.Errorf("with a concurrency of %d the error is %v", concurrency, err)
		}
	}
	worker := NewWorker(nil, WorkerOptions{})
	worker.Handle("h", handler)
	worker.HandleVersion("h", "2", handler)
	for _, again := range []func(){
		func() { worker.Handle("h", handler) },
		func() { worker.HandleVersion("h", "2", handler) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a second handler takes the place of the first")
				}
			}()
			again()
		}()
	}
}

func TestTheFirstHeartbeatComesBeforeTheLeaseEnds(t *testing.T) {
	now := time.Now()
	for left, want := range map[time.Duration]time.Duration{
		time.Minute:      20 * time.Second,
		50 * time.Second: 10 * time.Second,
		40 * time.Second: 0,
		10 * time.Second: 0, // it would be over before a third of it passed
	} {
		lease := lease{length: time.Minute, ends: now.Add(left)}
		if got := lease.firstBeat(now).Sub(now); got != want {
			t.Errorf("with %s left of a minute the first heartbeat is after %s, want %s", left, got, want)
		}
	}
}

type customError struct{}

func (*customError) Error() string { return "custom" }

type namedError struct{}

func (namedError) Error() string     { return "named" }
func (namedError) ErrorType() string { return "http.418" }

func TestErrorTypesSayWhatWentWrong(t *testing.T) {
	for _, each := range []struct {
		err  error
		want string
	}{
		{&customError{}, "rdq.customError"},
		{fmt.Errorf("twice: %w", fmt.Errorf("wrapped: %w", &customError{})), "rdq.customError"},
		{errors.Join(errors.New("plain"), &customError{}), "error"},
		{errors.Join(&customError{}, errors.New("plain")), "rdq.customError"},
		{errors.New("plain"), "error"},
		{fmt.Errorf("wrapped: %w", namedError{}), "http.418"},
		{Permanent(WithType("a.b", &customError{})), "a.b"},
		{Retryable(&customError{}), "rdq.customError"},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), "context.DeadlineExceeded"},
		{&PanicError{Value: "x"}, TypePanic},
	} {
		if got := errorType(each.err); got != each.want {
			t.Errorf("%#v is of type %q, want %q", each.err, got, each.want)
		}
	}
	if Permanent(nil) != nil || Retryable(nil) != nil || WithType("x", nil) != nil {
		t.Error("nil does not stay nil")
	}
}

func TestOutcomesAreWhatHandlersSay(t *testing.T) {
	handler := Handler(func(context.Context, *Claim) ([]byte, error) { return nil, nil })
	resolve := func(err error) *rdqv1.Resolution {
		return resolutionOf("t", []byte("token"), []byte("r"), err, handler)
	}
	cause := errors.New("cause")

	if got := resolve(nil).GetComplete(); string(got.GetResult()) != "r" || got.GetId() != "t" || string(got.GetClaimToken()) != "token" {
		t.Errorf("a success is %v", got)
	}
	if got := resolve(cause).GetFail(); got.GetAttempt().GetOutcome() != 0 || got.GetAttempt().GetError().GetMessage() != "cause" ||
		!strings.Contains(got.GetAttempt().GetError().GetStack(), "TestOutcomesAreWhatHandlersSay") {
		t.Errorf("an error is %v", got)
	}
	if got := resolve(Retryable(cause)).GetFail(); got.GetAttempt().GetOutcome() != OutcomeRetryableFailure {
		t.Errorf("Retryable is %v", got)
	}
	if got := resolve(fmt.Errorf("wrapped: %w", Permanent(cause))).GetDeadLetter(); got.GetAttempt().GetError() == nil {
		t.Errorf("Permanent is %v", got)
	}
	if got := resolve(RetryAfter(time.Minute, cause)).GetReschedule(); got.GetDelay().AsDuration() != time.Minute {
		t.Errorf("RetryAfter is %v", got)
	}
	if got := resolve(Snooze(time.Hour)).GetRelease(); got.GetDelay().AsDuration() != time.Hour {
		t.Errorf("Snooze is %v", got)
	}
	long := resolve(errors.New(strings.Repeat("é", 1<<20))).GetFail()
	if size := proto.Size(long); size > 300<<10 {
		t.Errorf("an endless message makes an outcome of %d bytes", size)
	}
}
