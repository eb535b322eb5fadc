package rdq

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// A shortAnswerer answers with fewer results than it has items: for ever where leases are extended, once elsewhere.
type shortAnswerer struct {
	rdqv1.TaskServiceClient
	mu       sync.Mutex
	resolved [][]string
	extended int
}

func (s *shortAnswerer) ResolveBatch(
	_ context.Context, request *rdqv1.ResolveBatchRequest, _ ...grpc.CallOption,
) (*rdqv1.ResolveBatchResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	var results []*rdqv1.ResolveResult
	for _, resolution := range request.GetResolutions() {
		ids = append(ids, resolution.GetRelease().GetId())
		results = append(results, &rdqv1.ResolveResult{
			Outcome: &rdqv1.ResolveResult_Resolved{Resolved: &rdqv1.ResolvedClaim{}},
		})
	}
	if len(s.resolved) == 0 {
		results = []*rdqv1.ResolveResult{results[0], {}} // one says nothing, and one is missing
	}
	s.resolved = append(s.resolved, ids)
	return &rdqv1.ResolveBatchResponse{Results: results}, nil
}

func (s *shortAnswerer) ExtendLeases(
	context.Context, *rdqv1.ExtendLeasesRequest, ...grpc.CallOption,
) (*rdqv1.ExtendLeasesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extended++
	return &rdqv1.ExtendLeasesResponse{}, nil
}

func (s *shortAnswerer) EnqueueBatch(
	_ context.Context, request *rdqv1.EnqueueBatchRequest, _ ...grpc.CallOption,
) (*rdqv1.EnqueueBatchResponse, error) {
	enqueued := &rdqv1.EnqueueResponse{Id: request.GetTasks()[0].GetId(), Created: true}
	return &rdqv1.EnqueueBatchResponse{Results: []*rdqv1.EnqueueResult{
		{Outcome: &rdqv1.EnqueueResult_Enqueued{Enqueued: enqueued}},
	}}, nil
}

// shortly is a worker that is answered so, and dispatches until the test ends.
func shortly(t *testing.T) (*Worker, *shortAnswerer) {
	t.Helper()
	client, answerer := NewClientFromConn(nil, ClientOptions{}), &shortAnswerer{}
	client.tasks = answerer
	worker := NewWorker(client, WorkerOptions{})
	ctx, end := context.WithCancel(t.Context())
	var dispatching sync.WaitGroup
	dispatching.Go(func() { worker.dispatch(ctx) })
	t.Cleanup(func() {
		end()
		dispatching.Wait()
	})
	return worker, answerer
}

func holdsSoon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 24_000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("this did not happen: %s", what)
}

func TestAnOutcomeWithoutAResultIsSentAgain(t *testing.T) {
	worker, answerer := shortly(t)
	worker.mu.Lock()
	for seq := range int64(3) {
		d := &delivery{seq: seq, id: fmt.Sprint("t-", seq), claim: &Claim{}}
		worker.work.bySeq[seq] = d
		worker.decide(d, releaseResolution(d.id, nil, 0))
	}
	worker.mu.Unlock()
	worker.wake()
	holdsSoon(t, "all are answered", func() bool {
		worker.mu.Lock()
		defer worker.mu.Unlock()
		return len(worker.work.bySeq) == 0
	})
	again := slices.Concat(answerer.resolved[1:]...)
	slices.Sort(again)
	if len(answerer.resolved[0]) != 3 || !slices.Equal(again, []string{"t-1", "t-2"}) {
		t.Errorf("the outcomes went as %v", answerer.resolved)
	}
}

func TestAHeartbeatWithoutAResultIsSentAgain(t *testing.T) {
	worker, answerer := shortly(t)
	d := &delivery{id: "t", claim: &Claim{}, isRunning: true}
	d.lease = lease{length: 100 * time.Millisecond, ends: time.Now().Add(100 * time.Millisecond)}
	worker.mu.Lock()
	worker.work.bySeq[d.seq] = d
	worker.queueBeat(d)
	worker.mu.Unlock()
	worker.wake()
	holdsSoon(t, "it is sent three times", func() bool {
		answerer.mu.Lock()
		defer answerer.mu.Unlock()
		return answerer.extended >= 3
	})
	worker.mu.Lock()
	defer worker.mu.Unlock()
	if d.isLost {
		t.Error("the claim is lost")
	}
}

func TestATaskWithoutAResultHasAnErrorOfItsOwn(t *testing.T) {
	client := NewClientFromConn(nil, ClientOptions{})
	client.tasks = &shortAnswerer{}
	tasks := make([]NewTask, 3)
	for i := range tasks {
		tasks[i] = NewTask{Queue: "q", HandlerRef: "h", ID: fmt.Sprint("t-", i)}
	}
	results, err := client.EnqueueMany(t.Context(), tasks)
	if err == nil || results[0].Err != nil || !results[0].Created {
		t.Errorf("the first is %+v, and all of them %v", results[0], err)
	}
	for i, result := range results[1:] {
		failure := FromError(result.Err)
		if result.ID != tasks[i+1].ID || failure == nil || failure.Code != codes.Internal || !failure.OutcomeUnknown() {
			t.Errorf("%s is %+v", tasks[i+1].ID, result)
		}
	}
}
