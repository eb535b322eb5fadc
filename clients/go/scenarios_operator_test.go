package rdq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rdq "github.com/rdq-project/rdq/clients/go"
	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// bury makes dead letters, some of each error type, and returns their ids by it.
func (f *fixture) bury(queue string, count int, errorTypes ...string) map[string][]string {
	f.Helper()
	ids := map[string][]string{}
	var tasks []rdq.NewTask
	for i := range count {
		errorType := errorTypes[i%len(errorTypes)]
		id := fmt.Sprintf("%s-%d", queue, i)
		ids[errorType] = append(ids[errorType], id)
		tasks = append(tasks, rdq.NewTask{Queue: queue, HandlerRef: "dies", ID: id, Payload: []byte(errorType)})
	}
	_, err := f.client.EnqueueMany(f.ctx, tasks)
	f.must(err)
	worker := f.workWith(f.client, rdq.WorkerOptions{Queues: []string{queue}, Concurrency: 64}, func(worker *rdq.Worker) {
		worker.Handle("dies", func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
			return nil, rdq.Permanent(rdq.WithType(string(claim.Payload), errors.New("dead")))
		})
	})
	f.until("all are dead", func() bool { return f.stats(queue).DLQDepth == int64(count) })
	f.must(worker.stop())
	return ids
}

func TestPageIteration(t *testing.T) {
	f := start(t)
	const count = 130
	ids := f.bury("q", count, "any")["any"]
	slices.Sort(ids)
	for name, list := range map[string]func() ([]string, error){
		"List": func() (seen []string, err error) {
			for task, err := range f.client.List(f.ctx, "q", rdq.ListOptions{PageSize: 30}) {
				if err != nil {
					return nil, err
				}
				seen = append(seen, task.ID)
			}
			return seen, nil
		},
		"DLQList": func() (seen []string, err error) {
			for task, err := range f.client.DLQList(f.ctx, "q", rdq.DLQListOptions{}) {
				if err != nil {
					return nil, err
				}
				seen = append(seen, task.ID)
			}
			return seen, nil
		},
	} {
		seen, err := list()
		f.must(err)
		slices.Sort(seen)
		if !slices.Equal(seen, ids) {
			t.Errorf("%s yields %d tasks, of which %d differ", name, len(seen), len(slices.Compact(slices.Clone(seen))))
		}
	}

	first, err := f.client.ListPage(f.ctx, "q", rdq.ListOptions{PageSize: 30}, "")
	f.must(err)
	if len(first.Items) != 30 || first.NextToken == "" {
		t.Fatalf("the first page has %d tasks", len(first.Items))
	}
	_, err = f.client.ListPage(f.ctx, "q", rdq.ListOptions{PageSize: 30}, tampered(first.NextToken))
	if !errors.Is(err, rdq.ErrInvalidCursor) {
		t.Errorf("a tampered token: %v", err)
	}
	dead, err := f.client.DLQListPage(f.ctx, "q", rdq.DLQListOptions{}, "")
	f.must(err)
	_, err = f.client.DLQListPage(f.ctx, "q", rdq.DLQListOptions{}, tampered(dead.NextToken))
	if !errors.Is(err, rdq.ErrInvalidCursor) {
		t.Errorf("a tampered token of dead letters: %v", err)
	}
	for range f.client.List(f.ctx, "q", rdq.ListOptions{}) {
		break // who has seen enough may leave
	}
}

func tampered(token string) string {
	middle := len(token) / 2
	other := "A"
	if token[middle] == 'A' {
		other = "B"
	}
	return token[:middle] + other + token[middle+1:]
}

func TestOperatorCalls(t *testing.T) {
	f := start(t)

	// Configuration: what is put is what is there.
	config := rdq.QueueConfig{
		MaxAttempts: new(3), InitialBackoff: new(2 * time.Second), Multiplier: new(1.5), MaxBackoff: new(time.Minute),
		Jitter: new(0.0), Retryable: []string{"http.5*"}, Permanent: []string{"http.4*"}, Lease: new(45 * time.Second),
		Timeout: new(time.Hour), StrictLeases: new(false), MaxPayloadBytes: new(int64(1000)),
		RetentionSucceeded: new(time.Duration(0)), RetentionCancelled: new(time.Hour), RetentionDead: new(2 * time.Hour),
		VersionMismatch: rdq.DeadLetter, Paused: new(false),
	}
	put, err := f.client.PutQueue(f.ctx, "configured", config)
	f.must(err)
	got, err := f.client.GetQueue(f.ctx, "configured")
	f.must(err)
	for _, queue := range []*rdq.Queue{put, got} {
		if queue.Config == nil || queue.UpdatedAt.IsZero() || fmt.Sprint(flat(*queue.Config)) != fmt.Sprint(flat(config)) ||
			fmt.Sprint(flat(queue.Effective)) != fmt.Sprint(flat(config)) {
			t.Errorf("the queue is %v, want %v", flat(*queue.Config), flat(config))
		}
	}
	plain, err := f.client.GetQueue(f.ctx, "never configured")
	f.must(err)
	if plain.Config != nil || *plain.Effective.MaxAttempts != 5 || *plain.Effective.Lease != time.Minute {
		t.Errorf("a queue that nobody configured is %+v", plain)
	}
	for i := range 5 {
		f.configure(fmt.Sprintf("many-%d", i), rdq.QueueConfig{})
	}
	var names []string
	for queue, err := range f.client.ListQueues(f.ctx, rdq.ListQueuesOptions{PageSize: 2}) {
		f.must(err)
		names = append(names, queue.Name)
	}
	if fmt.Sprint(names) != "[configured many-0 many-1 many-2 many-3 many-4]" {
		t.Errorf("the queues are %v", names)
	}
	existed, err := f.client.DeleteQueue(f.ctx, "many-0")
	f.must(err)
	again, err := f.client.DeleteQueue(f.ctx, "many-0")
	f.must(err)
	if !existed || again {
		t.Errorf("DeleteQueue answers %t, then %t", existed, again)
	}

	// Pause and resume.
	paused, err := f.client.PauseQueue(f.ctx, "pausing")
	f.must(err)
	if !*paused.Effective.Paused {
		t.Error("the queue is not paused")
	}
	id := f.enqueue(rdq.NewTask{Queue: "pausing"})
	if claimed := f.claim("pausing", "eager"); claimed != nil {
		t.Error("a paused queue gave a task out")
	}
	resumed, err := f.client.ResumeQueue(f.ctx, "pausing")
	f.must(err)
	if *resumed.Effective.Paused {
		t.Error("the queue is paused still")
	}
	if claimed := f.claim("pausing", "eager"); claimed.GetTask().GetId() != id {
		t.Errorf("the resumed queue gave %v out", claimed)
	}

	// Stats.
	f.enqueue(rdq.NewTask{Queue: "pausing", Delay: time.Hour})
	f.enqueue(rdq.NewTask{Queue: "pausing"})
	stats, err := f.client.Stats(f.ctx, "pausing", "unknown")
	f.must(err)
	if s := stats[0]; len(stats) != 2 || s.Queue != "pausing" || s.Pending != 2 || s.Ready != 1 || s.Delayed != 1 ||
		s.InFlight != 1 || stats[1].Queue != "unknown" || stats[1].Pending != 0 {
		t.Errorf("the stats are %+v", stats)
	}

	// Redrive and purge, by ids, by filter, all; dry runs change nothing.
	ids := f.bury("dlq", 9, "a", "b", "c")
	var filtered []string
	options := rdq.DLQListOptions{Filter: rdq.DLQFilter{ErrorType: "b", HandlerRef: "dies"}, IncludeAttempts: true}
	for task, err := range f.client.DLQList(f.ctx, "dlq", options) {
		f.must(err)
		filtered = append(filtered, task.ID)
		if len(task.Attempts) != 1 || task.Attempts[0].Error.Stack == "" {
			t.Errorf("the attempts are %+v", task.Attempts)
		}
	}
	slices.Sort(filtered)
	if !slices.Equal(filtered, ids["b"]) {
		t.Errorf("the filter yields %v", filtered)
	}
	byType := func(errorType string) rdq.Selector { return rdq.SelectFilter(rdq.DLQFilter{ErrorType: errorType}) }
	counts := func(what string, got int64, err error, want, left int64) {
		t.Helper()
		f.must(err)
		if depth := f.stats("dlq").DLQDepth; got != want || depth != left {
			t.Errorf("%s: %d, and %d dead letters are left; want %d and %d", what, got, depth, want, left)
		}
	}
	var progress []int64
	count, err := f.client.Redrive(f.ctx, "dlq", rdq.SelectAll(), rdq.RedriveOptions{
		DryRun: true, Progress: func(count int64) { progress = append(progress, count) },
	})
	counts("a dry run of Redrive", count, err, 9, 9)
	if len(progress) == 0 || progress[len(progress)-1] != 9 || !slices.IsSorted(progress) {
		t.Errorf("the running count was %v", progress)
	}
	count, err = f.client.Purge(f.ctx, "dlq", byType("a"), rdq.PurgeOptions{DryRun: true})
	counts("a dry run of Purge", count, err, 3, 9)
	count, err = f.client.Redrive(f.ctx, "dlq", rdq.SelectIDs(ids["a"][0], "nobody"), rdq.RedriveOptions{})
	counts("Redrive by ids", count, err, 1, 8)
	count, err = f.client.Purge(f.ctx, "dlq", rdq.SelectIDs(ids["a"][1]), rdq.PurgeOptions{})
	counts("Purge by ids", count, err, 1, 7)
	count, err = f.client.Redrive(f.ctx, "dlq", byType("b"), rdq.RedriveOptions{SpreadOver: time.Hour})
	counts("Redrive by a filter", count, err, 3, 4)
	count, err = f.client.Purge(f.ctx, "dlq", byType("c"), rdq.PurgeOptions{})
	counts("Purge by a filter", count, err, 3, 1)
	count, err = f.client.Redrive(f.ctx, "dlq", rdq.SelectAll(), rdq.RedriveOptions{RatePerSecond: 100})
	counts("Redrive of all", count, err, 1, 0)
	f.bury("gone", 2, "a")
	count, err = f.client.Purge(f.ctx, "gone", rdq.SelectAll(), rdq.PurgeOptions{})
	counts("Purge of all", count, err, 2, 0)
	if task := f.get(ids["a"][0]); task.Status != rdq.StatusPending || task.RedriveCount != 1 || len(task.Attempts) != 1 {
		t.Errorf("the redriven task is %+v", task)
	}
	for name, selector := range map[string]rdq.Selector{"none": {}, "an empty filter": rdq.SelectFilter(rdq.DLQFilter{})} {
		if _, err := f.client.Purge(f.ctx, "dlq", selector, rdq.PurgeOptions{}); !errors.Is(err, rdq.ErrInvalidArgument) {
			t.Errorf("a selector that is %s: %v", name, err)
		}
	}

	// Cancel, of a task that waits and of one that is finished.
	waits := f.enqueue(rdq.NewTask{Queue: "cancels"})
	first, did, err := f.client.Cancel(f.ctx, waits)
	f.must(err)
	second, didAgain, err := f.client.Cancel(f.ctx, waits)
	f.must(err)
	if first != rdq.StatusCancelled || !did || second != rdq.StatusCancelled || didAgain {
		t.Errorf("Cancel answers %s %t, then %s %t", first, did, second, didAgain)
	}
}

// flat has the values of a configuration in place of the pointers.
func flat(config rdq.QueueConfig) map[string]any {
	return map[string]any{
		"attempts": *config.MaxAttempts, "initial": *config.InitialBackoff, "multiplier": *config.Multiplier,
		"max": *config.MaxBackoff, "jitter": *config.Jitter, "retryable": config.Retryable, "permanent": config.Permanent,
		"lease": *config.Lease, "timeout": *config.Timeout, "strict": *config.StrictLeases,
		"payload": *config.MaxPayloadBytes, "succeeded": *config.RetentionSucceeded,
		"cancelled": *config.RetentionCancelled, "dead": *config.RetentionDead, "version": config.VersionMismatch,
		"paused": *config.Paused,
	}
}

func TestErrorsByReason(t *testing.T) {
	f := start(t)
	f.enqueue(rdq.NewTask{ID: "taken"})
	page := func(queue, token string) error {
		_, err := f.client.ListPage(f.ctx, queue, rdq.ListOptions{PageSize: 1}, token)
		return err
	}
	f.enqueue(rdq.NewTask{})
	first, err := f.client.ListPage(f.ctx, "q", rdq.ListOptions{PageSize: 1}, "")
	f.must(err)
	enqueue := func(task rdq.NewTask) error {
		_, err := f.client.Enqueue(f.ctx, task)
		return err
	}
	declared := startServer(t, "--require-declared-queues")
	claimed := f.claim("q", "me")
	complete := func() error {
		_, err := f.client.TaskService().Complete(f.ctx, &rdqv1.CompleteRequest{
			Id: claimed.GetTask().GetId(), ClaimToken: claimed.GetClaimToken(),
		})
		if err == nil {
			return nil
		}
		return rdq.FromError(err)
	}
	_, _, err = f.client.Cancel(f.ctx, claimed.GetTask().GetId())
	f.must(err)
	_, notEmpty := f.client.DeleteQueue(f.ctx, "q")
	_, notFound := f.client.Get(f.ctx, "nobody")
	_, noQueue := newClient(t, declared.address()).Enqueue(f.ctx, rdq.NewTask{Queue: "undeclared", HandlerRef: "h"})

	for reason, got := range map[rdq.Reason]struct {
		err      error
		code     codes.Code
		metadata string
	}{
		rdq.ErrStaleClaim:            {complete(), codes.FailedPrecondition, "task_id"},
		rdq.ErrQueueNotEmpty:         {notEmpty, codes.FailedPrecondition, "queue"},
		rdq.ErrNotFound:              {notFound, codes.NotFound, "task_id"},
		rdq.ErrQueueNotFound:         {noQueue, codes.NotFound, "queue"},
		rdq.ErrIDConflict:            {enqueue(rdq.NewTask{Queue: "o", HandlerRef: "h", ID: "taken"}), codes.AlreadyExists, "task_id"},
		rdq.ErrInvalidName:           {enqueue(rdq.NewTask{Queue: " ", HandlerRef: "h"}), codes.InvalidArgument, "field"},
		rdq.ErrReservedName:          {enqueue(rdq.NewTask{Queue: "__rdq_x", HandlerRef: "h"}), codes.InvalidArgument, "field"},
		rdq.ErrInvalidArgument:       {enqueue(rdq.NewTask{Queue: "q", HandlerRef: "h", Lease: 1}), codes.InvalidArgument, "field"},
		rdq.ErrInvalidCursor:         {page("q", tampered(first.NextToken)), codes.InvalidArgument, ""},
		rdq.ErrCursorBindingMismatch: {page("other", first.NextToken), codes.InvalidArgument, ""},
		rdq.ErrPayloadTooLarge:       {enqueue(rdq.NewTask{Queue: "q", HandlerRef: "h", Payload: make([]byte, 3<<20)}), codes.InvalidArgument, "limit_bytes"},
		rdq.ErrMessageTooLarge:       {enqueue(rdq.NewTask{Queue: "q", HandlerRef: "h", Payload: make([]byte, 9<<20)}), codes.ResourceExhausted, "limit_bytes"},
	} {
		checkReason(t, reason, got.err, got.code)
		var refusal *rdq.Error
		if errors.As(got.err, &refusal) && got.metadata != "" && refusal.Metadata[got.metadata] == "" {
			t.Errorf("%s: the metadata is %v", string(reason), refusal.Metadata)
		}
	}

	// The others, and one of a newer contract, by a server that answers with what it is asked for.
	says := newClient(t, startSaying(t))
	for number, name := range rdqv1.ErrorReason_name {
		if number == 0 {
			continue
		}
		reason := rdq.Reason(strings.TrimPrefix(name, "ERROR_REASON_"))
		_, err := says.Get(f.ctx, "INVALID_ARGUMENT "+string(reason))
		checkReason(t, reason, err, codes.InvalidArgument)
	}
	for _, reason := range []string{"OF_A_NEWER_CONTRACT", ""} {
		_, err := says.Get(f.ctx, "FAILED_PRECONDITION "+reason)
		var refusal *rdq.Error
		if !errors.As(err, &refusal) || refusal.Code != codes.FailedPrecondition || string(refusal.Reason) != reason ||
			refusal.Message != "said so" || refusal.Retryable() {
			t.Errorf("the reason %q: %v", reason, err)
		}
		for _, name := range rdqv1.ErrorReason_name {
			if errors.Is(err, rdq.Reason(strings.TrimPrefix(name, "ERROR_REASON_"))) {
				t.Errorf("the reason %q is taken for %s", reason, name)
			}
		}
	}
}

func checkReason(t *testing.T, reason rdq.Reason, err error, code codes.Code) {
	t.Helper()
	var refusal *rdq.Error
	if !errors.Is(err, reason) || !errors.As(err, &refusal) || refusal.Code != code || status.Code(err) != code ||
		refusal.Message == "" {
		t.Errorf("%s: %v", string(reason), err)
	}
	if reason != rdq.ErrInternal && errors.Is(err, rdq.ErrInternal) {
		t.Errorf("%s is taken for another", string(reason))
	}
}

// saying answers Get with the code and the reason that the id names.
type saying struct {
	rdqv1.UnimplementedTaskServiceServer
}

func (saying) Get(_ context.Context, request *rdqv1.GetRequest) (*rdqv1.GetResponse, error) {
	name, reason, _ := strings.Cut(request.GetId(), " ")
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		return nil, err
	}
	answer := status.New(code, "said so")
	if reason != "" {
		var err error
		if answer, err = answer.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "rdq"}); err != nil {
			return nil, err
		}
	}
	return nil, answer.Err()
}

func startSaying(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	rdqv1.RegisterTaskServiceServer(server, saying{})
	t.Cleanup(server.Stop)
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}
