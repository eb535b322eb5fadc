package rdq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	rdq "github.com/rdq-project/rdq/clients/go"
	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// publish appends events to the stream "events" and returns the offset of the last.
func (f *fixture) publish(payloads ...string) (offset int64) {
	f.Helper()
	for _, payload := range payloads {
		request := &rdqv1.PublishRequest{Stream: "events", Payload: []byte(payload)}
		// After a restart the connection may not be there yet.
		response, err := f.client.StreamService().Publish(f.ctx, request, grpc.WaitForReady(true))
		f.must(err)
		offset = response.GetOffset()
	}
	return offset
}

func (f *fixture) savedOffset() int64 {
	f.Helper()
	request := &rdqv1.GetOffsetRequest{Stream: "events", Consumer: "reader"}
	response, err := f.client.StreamService().GetOffset(f.ctx, request, grpc.WaitForReady(true))
	f.must(err)
	return response.GetOffset()
}

// A subscribed is a subscription that runs.
type subscribed struct {
	f      *fixture
	events chan string
	ended  chan error
	stop   context.CancelFunc
}

// subscribe reads "events"; the handler fails at the payload that is named.
func (f *fixture) subscribe(failsAt string) *subscribed {
	ctx, stop := context.WithCancel(f.ctx)
	s := &subscribed{f: f, events: make(chan string, 1000), ended: make(chan error, 1), stop: stop}
	go func() {
		s.ended <- f.client.Subscribe(ctx, "events", "reader", func(_ context.Context, event *rdqv1.StreamEvent) error {
			if failsAt != "" && string(event.GetPayload()) == failsAt {
				return errHandler
			}
			s.events <- string(event.GetPayload())
			return nil
		}, rdq.SubscriptionOptions{EventsPerMessage: 2})
	}()
	f.Cleanup(stop)
	return s
}

var errHandler = errors.New("the handler failed")

func (s *subscribed) gets(payloads ...string) {
	s.f.Helper()
	for _, payload := range payloads {
		if got := receive(s.f, payload+" comes", s.events); got != payload {
			s.f.Fatalf("%s came, want %s", got, payload)
		}
	}
}

func TestSubscription(t *testing.T) {
	f := start(t)
	f.publish("1", "2", "3")
	s := f.subscribe("")
	s.gets("1", "2", "3")
	last := f.publish("4", "5")
	s.gets("4", "5")
	f.until("the offset is saved", func() bool { return f.savedOffset() == last })

	f.server.kill()
	f.server.restart()
	last = f.publish("6", "7")
	s.gets("6", "7")
	s.stop()
	f.must(receive(f, "the subscription stops", s.ended))
	if saved := f.savedOffset(); saved != last {
		t.Errorf("%d is saved, want %d", saved, last)
	}

	succeeded := f.publish("8")
	f.publish("9", "10")
	s = f.subscribe("9")
	s.gets("8")
	if err := receive(f, "the handler's error ends it", s.ended); err != errHandler {
		t.Errorf("it ended by %v", err)
	}
	if saved := f.savedOffset(); saved != succeeded {
		t.Errorf("%d is saved, want %d", saved, succeeded)
	}
	s = f.subscribe("")
	s.gets("9", "10")
	s.stop()
	f.must(receive(f, "the subscription stops", s.ended))
	if len(s.events) != 0 {
		t.Errorf("%d events more came", len(s.events))
	}

	err := f.client.Subscribe(f.ctx, " ", "reader", nil, rdq.SubscriptionOptions{})
	if !errors.Is(err, rdq.ErrInvalidName) {
		t.Errorf("a stream without a name: %v", err)
	}
}

// What a subscription does not read holds up no other call of its connection, which it shares.
func TestSubscriptionThatIsNotRead(t *testing.T) {
	f := start(t)
	// The stream may bring far more than the connection's window.
	client := newClientWith(t, f.server.address(), rdq.ClientOptions{DialOptions: []grpc.DialOption{
		grpc.WithInitialWindowSize(4 << 20), grpc.WithInitialConnWindowSize(64 << 10),
	}})
	large := strings.Repeat("x", 60<<10)
	for range 16 {
		f.publish(large)
	}
	begun, goOn := make(chan bool, 16), make(chan bool)
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- client.Subscribe(ctx, "events", "reader", func(context.Context, *rdqv1.StreamEvent) error {
			begun <- true
			<-goOn
			return nil
		}, rdq.SubscriptionOptions{EventsPerMessage: 1})
	}()
	receive(f, "the handler begins, and waits", begun)
	called := make(chan error, 1)
	go func() {
		var err error
		for calls := 0; calls < 200 && err == nil; calls++ {
			_, err = client.Stats(f.ctx, "mail")
		}
		called <- err
	}()
	f.must(receive(f, "other calls are answered", called))
	stop()
	close(goOn)
	f.must(receive(f, "the subscription stops", ended))
}

func TestLockGuard(t *testing.T) {
	f := start(t)
	const ttl = 4 * time.Second
	first, err := f.client.Lock(f.ctx, "lock", rdq.LockOptions{TTL: ttl})
	f.must(err)
	if _, err := f.client.Lock(f.ctx, "lock", rdq.LockOptions{TTL: ttl}); err != rdq.ErrLockHeld {
		t.Errorf("another tries: %v", err)
	}
	waiting := make(chan *rdq.Lock, 1)
	go func() {
		second, err := f.client.Lock(f.ctx, "lock", rdq.LockOptions{TTL: ttl, Wait: time.Hour})
		if err != nil {
			f.Errorf("the one that waits: %v", err)
		}
		waiting <- second
	}()
	held := func() *rdqv1.GetLockResponse {
		response, err := f.client.LockService().GetLock(f.ctx, &rdqv1.GetLockRequest{Name: "lock"})
		f.must(err)
		return response
	}
	begin := held().GetExpiresAt().AsTime()
	f.until("it is renewed for several ttls", func() bool {
		return held().GetExpiresAt().AsTime().Sub(begin) > 2*ttl
	})
	if now := held(); now.GetOwner() != first.Owner() || now.GetGeneration() != first.Generation() || first.Lost() {
		t.Errorf("the lock is %v", now)
	}
	if len(waiting) != 0 || first.Context().Err() != nil {
		t.Errorf("%d others have it; the first: %v", len(waiting), context.Cause(first.Context()))
	}
	first.Release()
	first.Release()
	if first.Lost() || first.Context().Err() == nil {
		t.Error("a lock that is released is lost, or still there")
	}
	second := receive(f, "the one that waits has it", waiting)
	if second.Generation() <= first.Generation() || second.Name() != "lock" {
		t.Errorf("generation %d after %d", second.Generation(), first.Generation())
	}

	f.server.kill()
	receive(f, "the holder is told", second.Context().Done())
	var cause *rdq.Error
	if err := context.Cause(second.Context()); !errors.Is(err, rdq.ErrLockLost) || !errors.As(err, &cause) || !second.Lost() {
		t.Errorf("it is lost by %v", err)
	}
	second.Release()
	f.server.restart()
	third, err := f.client.Lock(f.ctx, "lock", rdq.LockOptions{Wait: time.Hour})
	f.must(err)
	if third.Generation() <= second.Generation() {
		t.Errorf("generation %d after %d", third.Generation(), second.Generation())
	}
	third.Release()
	if now := held(); now.GetHeld() {
		t.Errorf("after the release the lock is %v", now)
	}
}

func TestLockThatIsTakenAway(t *testing.T) {
	f := start(t)
	lock, err := f.client.Lock(f.ctx, "lock", rdq.LockOptions{TTL: 3 * time.Second, Owner: "me"})
	f.must(err)
	_, err = f.client.LockService().Release(f.ctx, &rdqv1.LockServiceReleaseRequest{Name: "lock", Owner: "me"})
	f.must(err)
	receive(f, "the holder is told", lock.Context().Done())
	if err := context.Cause(lock.Context()); !errors.Is(err, rdq.ErrLockLost) {
		t.Errorf("it is lost by %v", err)
	}
}

func TestLockOutOfReach(t *testing.T) {
	f := start(t)
	way := startProxy(t, f.server.address())
	client := newClient(t, way.address())
	lock, err := client.Lock(f.ctx, "lock", rdq.LockOptions{TTL: 3 * time.Second})
	f.must(err)
	way.hold(true, true)
	receive(f, "the holder is told", lock.Context().Done())
	if err := context.Cause(lock.Context()); !errors.Is(err, rdq.ErrLockLost) {
		t.Errorf("it is lost by %v", err)
	}

	// The answer is lost: whoever does not know whether it has the lock gives it back.
	way.hold(false, false)
	way.cut()
	_, err = client.Stats(f.ctx) // there is a connection again
	f.must(err)
	way.hold(false, true)
	ctx, giveUp := context.WithCancel(f.ctx)
	tried := make(chan error, 1)
	go func() {
		_, err := client.Lock(ctx, "other", rdq.LockOptions{TTL: time.Hour})
		tried <- err
	}()
	isHeld := func() bool {
		response, err := f.client.LockService().GetLock(f.ctx, &rdqv1.GetLockRequest{Name: "other"})
		f.must(err)
		return response.GetHeld()
	}
	f.until("it is acquired", isHeld)
	giveUp()
	if err := receive(f, "the call ends", tried); !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended by %v", err)
	}
	f.until("it is released", func() bool { return !isHeld() })
}

// put enqueues a message to the outbox "mail".
func (f *fixture) put(payload string) {
	f.Helper()
	request := &rdqv1.OutboxServiceEnqueueRequest{Outbox: "mail", Payload: []byte(payload)}
	_, err := f.client.OutboxService().Enqueue(f.ctx, request)
	f.must(err)
}

func (f *fixture) unprojected() int64 {
	f.Helper()
	request := &rdqv1.CountUnprojectedRequest{Outbox: new("mail")}
	response, err := f.client.OutboxService().CountUnprojected(f.ctx, request)
	f.must(err)
	return response.GetCounts()[0].GetUnprojected()
}

func TestOutboxRelay(t *testing.T) {
	f := start(t)
	relay := rdq.NewOutboxRelay(f.client, rdq.OutboxRelayOptions{Outbox: "mail"})
	once := func(want bool, deliver rdq.Deliver) {
		t.Helper()
		if found, err := relay.RunOnce(f.ctx, "me", deliver); err != nil || found != want {
			t.Fatalf("RunOnce is %t, %v", found, err)
		}
	}
	never := func(_ context.Context, message *rdqv1.OutboxMessage) error {
		t.Errorf("%s is delivered again", message.GetPayload())
		return nil
	}

	once(false, never)
	f.put("one")
	var delivered []string
	once(true, func(_ context.Context, message *rdqv1.OutboxMessage) error {
		delivered = append(delivered, string(message.GetPayload()))
		return nil
	})
	if !slices.Equal(delivered, []string{"one"}) || f.unprojected() != 0 {
		t.Errorf("delivered are %v, left %d", delivered, f.unprojected())
	}
	once(false, never)

	f.put("two")
	once(true, func(context.Context, *rdqv1.OutboxMessage) error {
		return rdq.WithType("smtp.421", errors.New("not now"))
	})
	again := make(chan *rdqv1.OutboxMessage, 10)
	ctx, stop := context.WithCancel(f.ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- relay.Run(ctx, "me", func(_ context.Context, message *rdqv1.OutboxMessage) error {
			again <- message
			return nil
		})
	}()
	second := receive(f, "it comes again", again)
	if string(second.GetPayload()) != "two" || second.GetAttemptCount() != 2 || second.GetLastError() != "smtp.421: not now" {
		t.Errorf("what comes again is %v", second)
	}
	f.until("it is projected", func() bool { return f.unprojected() == 0 })
	stop()
	f.must(receive(f, "the loop stops", ended))
	f.put("three")
	if len(again) != 0 {
		t.Errorf("%d messages more were delivered", len(again))
	}

	// One whose claim ends while it is delivered is another's, and that is no error.
	relay = rdq.NewOutboxRelay(f.client, rdq.OutboxRelayOptions{Lease: 10 * time.Millisecond})
	for _, failure := range []error{nil, errors.New("too late")} {
		var rival *rdqv1.OutboxMessage
		once(true, func(ctx context.Context, message *rdqv1.OutboxMessage) error {
			f.until("another claims it", func() bool {
				claimed, err := f.client.OutboxService().ClaimBatch(ctx, &rdqv1.ClaimBatchRequest{
					WorkerId: "rival", Lease: durationpb.New(time.Hour),
				})
				f.must(err)
				if len(claimed.GetMessages()) > 0 {
					rival = claimed.GetMessages()[0]
				}
				return rival != nil
			})
			return failure
		})
		_, err := f.client.OutboxService().ReleaseWithError(f.ctx, &rdqv1.ReleaseWithErrorRequest{
			Id: rival.GetId(), WorkerId: "rival", Generation: rival.GetGeneration(),
		})
		f.must(err)
	}

	// One that is broken off is due at once.
	relay = rdq.NewOutboxRelay(f.client, rdq.OutboxRelayOptions{Outbox: "mail", Lease: time.Hour})
	ctx, stop = context.WithCancel(f.ctx)
	_, err := relay.RunOnce(ctx, "me", func(ctx context.Context, _ *rdqv1.OutboxMessage) error {
		stop()
		return fmt.Errorf("broken off: %w", ctx.Err())
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the delivery that was broken off: %v", err)
	}
	once(true, func(_ context.Context, message *rdqv1.OutboxMessage) error {
		if string(message.GetPayload()) != "three" || !strings.Contains(message.GetLastError(), "broken off") {
			t.Errorf("what comes again is %v", message)
		}
		return nil
	})
}

func TestCommit(t *testing.T) {
	f := start(t)
	commit := func(id string, revision int64) error {
		_, err := f.client.TransactionService().Commit(f.ctx, &rdqv1.CommitRequest{Operations: []*rdqv1.Operation{
			{Operation: &rdqv1.Operation_Publish{Publish: &rdqv1.PublishRequest{Stream: "events", Payload: []byte(id)}}},
			{Operation: &rdqv1.Operation_Enqueue{Enqueue: &rdqv1.EnqueueRequest{
				Task: &rdqv1.Task{Queue: "q", HandlerRef: "h", Id: id},
			}}},
			{Operation: &rdqv1.Operation_CompareAndSet{CompareAndSet: &rdqv1.CompareAndSetRequest{
				Key: "record", Value: []byte(id), ExpectedRevision: revision,
			}}},
		}})
		return err
	}
	isThere := func() {
		t.Helper()
		read, err := f.client.StreamService().Read(f.ctx, &rdqv1.ReadRequest{
			Stream: "events", Start: &rdqv1.ReadRequest_Offset{},
		})
		f.must(err)
		record, err := f.client.RecordService().GetRecord(f.ctx, &rdqv1.GetRecordRequest{Key: "record"})
		f.must(err)
		if len(read.GetEvents()) != 1 || string(read.GetEvents()[0].GetPayload()) != "first" ||
			string(record.GetRecord().GetValue()) != "first" || record.GetRecord().GetRevision() != 1 {
			t.Errorf("there are %v and %v", read, record)
		}
	}
	f.must(commit("first", 0))
	isThere()
	if task := f.get("first"); task.Status != rdq.StatusPending {
		t.Errorf("the task is %s", task.Status)
	}

	err := commit("second", 0)
	failure := rdq.FromError(err)
	if !errors.Is(failure, rdq.ErrCASConflict) || failure.Metadata["operation_index"] != "2" ||
		failure.Metadata["key"] != "record" || failure.Retryable() {
		t.Errorf("the conflict is %v, %v", failure, failure.Metadata)
	}
	isThere()
	if _, err := f.client.Get(f.ctx, "second"); !errors.Is(err, rdq.ErrNotFound) {
		t.Errorf("the task of the commit that failed: %v", err)
	}
}

func TestStubsHaveTheDeadlineOfTheClient(t *testing.T) {
	f := start(t)
	way := startProxy(t, f.server.address())
	way.hold(true, true)
	client := newClientWith(t, way.address(), rdq.ClientOptions{Deadline: 50 * time.Millisecond})
	_, err := client.RecordService().GetRecord(context.Background(), &rdqv1.GetRecordRequest{Key: "k"})
	if failure := rdq.FromError(err); failure.Code.String() != "DeadlineExceeded" {
		t.Errorf("without an answer: %v", err)
	}
}
