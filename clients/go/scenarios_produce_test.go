package rdq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	rdq "github.com/rdq-project/rdq/clients/go"
	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

func TestEnqueueOptions(t *testing.T) {
	f := start(t)
	low := f.enqueue(rdq.NewTask{ID: "low", Priority: -5})
	expiresAt := time.Now().Add(48 * time.Hour).Truncate(time.Millisecond)
	high := f.enqueue(rdq.NewTask{
		ID: "high", Priority: 7, HandlerVersion: "v3", Payload: []byte(`{"a":1}`), ContentType: "application/json",
		Headers: map[string]string{"tenant": "t-1", "empty": ""}, ExpiresAt: expiresAt,
		MaxAttempts: 9, Lease: 77 * time.Second, InitialBackoff: 3 * time.Second, RetentionDead: time.Hour,
	})
	delayed := f.get(f.enqueue(rdq.NewTask{Delay: time.Hour, ExpiresIn: 2 * time.Hour}))
	dueAt := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
	planned := f.get(f.enqueue(rdq.NewTask{DueAt: dueAt}))

	claims := make(chan *rdq.Claim, 2)
	f.work(rdq.WorkerOptions{Concurrency: 1}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		claims <- claim
		return nil, nil
	})
	first, second := receive(f, "the first claim", claims), receive(f, "the second claim", claims)

	if first.ID != high || second.ID != low || second.Priority != -5 {
		t.Errorf("%s ran before %s", first.ID, second.ID)
	}
	if first.Queue != "q" || first.HandlerRef != "h" || first.HandlerVersion != "v3" || first.Priority != 7 ||
		string(first.Payload) != `{"a":1}` || first.ContentType != "application/json" ||
		!maps.Equal(first.Headers, map[string]string{"tenant": "t-1", "empty": ""}) ||
		!first.ExpiresAt.Equal(expiresAt) || first.MaxAttempts != 9 || first.Task.MaxAttempts != 9 ||
		first.Lease != 77*time.Second || first.InitialBackoff != 3*time.Second || first.RetentionDead != time.Hour {
		t.Errorf("the task did not arrive as it was set: %+v", &first.Task)
	}
	if lease := first.LeaseExpiresAt.Sub(first.ClaimedAt); lease != 77*time.Second {
		t.Errorf("the lease of the claim is %s", lease)
	}
	if wait := delayed.NextAttemptAt.Sub(delayed.CreatedAt); wait != time.Hour {
		t.Errorf("the delayed task is due after %s", wait)
	}
	if life := delayed.ExpiresAt.Sub(delayed.CreatedAt); life != 2*time.Hour {
		t.Errorf("the delayed task expires after %s", life)
	}
	if !planned.NextAttemptAt.Equal(dueAt) || !delayed.LeaseExpiresAt.IsZero() {
		t.Errorf("the planned task is due at %s, want %s", planned.NextAttemptAt, dueAt)
	}
}

func TestEnqueueRepeated(t *testing.T) {
	f := start(t)
	task := rdq.NewTask{Queue: "q", HandlerRef: "h", ID: "once", Payload: []byte("first")}
	first, err := f.client.Enqueue(f.ctx, task)
	f.must(err)
	task.Payload = []byte("second")
	second, err := f.client.Enqueue(f.ctx, task)
	f.must(err)
	if !first.Created || second.Created || second.ID != "once" || second.Status != rdq.StatusPending {
		t.Errorf("the admissions are %+v and %+v", first, second)
	}
	if payload := f.get("once").Payload; string(payload) != "first" {
		t.Errorf("the payload is %q", payload)
	}

	task.Queue = "other"
	_, err = f.client.Enqueue(f.ctx, task)
	var refusal *rdq.Error
	if !errors.Is(err, rdq.ErrIDConflict) || !errors.As(err, &refusal) || refusal.Metadata["task_id"] != "once" {
		t.Errorf("the same id in another queue: %v", err)
	}
}

func TestEnqueueAnswerLost(t *testing.T) {
	f := start(t)
	between := startProxy(t, f.server.address())
	client := newClient(t, between.address())
	_, err := client.Stats(f.ctx, "q") // the connection stands
	f.must(err)

	between.hold(false, true)
	type answer struct {
		admission rdq.Admission
		err       error
	}
	answers := make(chan answer, 1)
	go func() {
		admission, err := client.Enqueue(f.ctx, rdq.NewTask{Queue: "q", HandlerRef: "h"})
		answers <- answer{admission, err}
	}()
	f.until("the first try is admitted", func() bool { return f.stats("q").Pending == 1 })
	between.cut()
	between.hold(false, false)
	got := receive(f, "the caller has an answer", answers)

	f.must(got.err)
	page, err := f.client.ListPage(f.ctx, "q", rdq.ListOptions{}, "")
	f.must(err)
	if len(page.Items) != 1 || page.Items[0].ID != got.admission.ID {
		t.Errorf("there are %d tasks, and the caller was told %+v", len(page.Items), got.admission)
	}
	if got.admission.Created {
		t.Error("the answer is that of the first try, so none was lost")
	}
}

func TestEnqueueManyMixed(t *testing.T) {
	f := start(t)
	f.enqueue(rdq.NewTask{Queue: "other", ID: "taken"})
	tasks := make([]rdq.NewTask, 2_500)
	wants := map[int]rdq.Reason{
		0: rdq.ErrReservedName, 999: rdq.ErrIDConflict, 1_000: rdq.ErrInvalidName, 1_700: rdq.ErrInvalidArgument,
		2_499: rdq.ErrPayloadTooLarge,
	}
	for i := range tasks {
		tasks[i] = rdq.NewTask{Queue: "q", HandlerRef: "h", ID: fmt.Sprintf("t-%d", i), Payload: bytes.Repeat([]byte{1}, 2_000)}
	}
	tasks[0].Queue = "__rdq_mine"
	tasks[999].ID = "taken"
	tasks[1_000].HandlerRef = " "
	tasks[1_700].ID = "not \xff UTF-8"
	tasks[2_499].Payload = make([]byte, 1<<20+1)
	results, err := f.client.EnqueueMany(f.ctx, tasks)

	var many *rdq.EnqueueManyError
	if !errors.As(err, &many) || len(many.Failures) != len(wants) || many.Total != len(tasks) {
		t.Errorf("the error is %v", err)
	}
	if len(results) != len(tasks) {
		t.Fatalf("%d results", len(results))
	}
	for i, result := range results {
		if result.ID != tasks[i].ID {
			t.Errorf("result %d is of %q", i, result.ID)
		}
		if want, refused := wants[i]; refused != (result.Err != nil) || (refused && !errors.Is(result.Err, want)) {
			t.Errorf("result %d has error %v, want %v", i, result.Err, want)
		}
		if result.Err == nil && !result.Created {
			t.Errorf("task %d was there already", i)
		}
	}
	if pending := f.stats("q").Pending; pending != int64(len(tasks)-len(wants)) {
		t.Errorf("%d tasks are there", pending)
	}
}

func TestUnicodeAndBinary(t *testing.T) {
	f := start(t)
	const text = "🚀 ñ مرحبا 日本 e\u0301"
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	id := f.enqueue(rdq.NewTask{
		ID: "id " + text, Queue: "queue " + text, HandlerRef: "handler " + text, HandlerVersion: "version " + text,
		Payload: all, ContentType: "type " + text, Headers: map[string]string{"key " + text: text},
	})
	f.configure("queue "+text, rdq.QueueConfig{InitialBackoff: new(time.Millisecond)})
	claims := make(chan *rdq.Claim, 2)
	f.workWith(f.client, rdq.WorkerOptions{Queues: []string{"queue " + text}, WorkerID: "worker " + text},
		func(worker *rdq.Worker) {
			worker.HandleVersion("handler "+text, "version "+text, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
				claims <- claim
				if claim.AttemptNo == 1 {
					return nil, rdq.WithType("type "+text, errors.New("message "+text+" \xff\x00"))
				}
				return claim.Payload, nil
			})
		})

	for range 2 {
		claim := receive(f, "a claim", claims)
		if claim.ID != id || !bytes.Equal(claim.Payload, all) || claim.Headers["key "+text] != text ||
			claim.ContentType != "type "+text {
			t.Errorf("the claim is of %+v", &claim.Task)
		}
	}
	task := f.ends(id, rdq.StatusSucceeded)
	if task.ID != "id "+text || !bytes.Equal(task.Result, all) || !bytes.Equal(task.Payload, all) {
		t.Errorf("the task came back as %+v", task)
	}
	failed := task.Attempts[0]
	if failed.Error.Type != "type "+text || failed.Error.Message != "message "+text+" \uFFFD\uFFFD" ||
		failed.WorkerID != "worker "+text {
		t.Errorf("the failure came back as %+v of %q", failed.Error, failed.WorkerID)
	}
}

func TestHugePayload(t *testing.T) {
	f := start(t)
	const largest = 2 << 20
	f.configure("q", rdq.QueueConfig{MaxPayloadBytes: new(int64(largest))})
	payload := bytes.Repeat([]byte("rdq "), largest/4)
	var tasks []rdq.NewTask
	for range 4 {
		tasks = append(tasks, rdq.NewTask{Queue: "q", HandlerRef: "h", Payload: payload})
	}
	results, err := f.client.EnqueueMany(f.ctx, tasks)
	f.must(err)
	f.work(rdq.WorkerOptions{Concurrency: 4}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		if !bytes.Equal(claim.Payload, payload) {
			return nil, rdq.Permanent(errors.New("another payload"))
		}
		return nil, nil
	})
	for _, result := range results {
		if task := f.ends(result.ID, rdq.StatusSucceeded); !bytes.Equal(task.Payload, payload) {
			t.Error("the payload changed")
		}
	}

	_, err = f.client.Enqueue(f.ctx, rdq.NewTask{Queue: "q", HandlerRef: "h", Payload: make([]byte, largest+1)})
	var refusal *rdq.Error
	if !errors.Is(err, rdq.ErrPayloadTooLarge) || !errors.As(err, &refusal) ||
		refusal.Metadata["limit_bytes"] != strconv.Itoa(largest) ||
		refusal.Metadata["size_bytes"] != strconv.Itoa(largest+1) {
		t.Errorf("one byte more: %v", err)
	}
}

func TestUnknownFields(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{InitialBackoff: new(time.Millisecond)})
	newer := protowire.AppendString(protowire.AppendTag(nil, 7_777, protowire.BytesType), "of a newer contract")
	task := &rdqv1.Task{Id: "t", Queue: "q", HandlerRef: "h"}
	task.ProtoReflect().SetUnknown(newer)
	_, err := f.client.TaskService().Enqueue(f.ctx, &rdqv1.EnqueueRequest{Task: task})
	f.must(err)
	claimed := make(chan []byte, 3)
	f.work(rdq.WorkerOptions{}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		claimed <- claim.Proto().ProtoReflect().GetUnknown()
		switch claim.AttemptNo {
		case 1:
			return nil, errors.New("once more")
		case 2:
			return nil, rdq.Permanent(errors.New("enough"))
		default:
			return nil, nil
		}
	})

	f.ends("t", rdq.StatusDead)
	_, err = f.client.Redrive(f.ctx, "q", rdq.SelectIDs("t"), rdq.RedriveOptions{})
	f.must(err)
	done := f.ends("t", rdq.StatusSucceeded)
	for i := range 3 {
		if unknown := receive(f, "a claim", claimed); !bytes.Equal(unknown, newer) {
			t.Errorf("claim %d has %q", i+1, unknown)
		}
	}
	if unknown := done.Proto().ProtoReflect().GetUnknown(); !bytes.Equal(unknown, newer) {
		t.Errorf("the task came back with %q", unknown)
	}
}
