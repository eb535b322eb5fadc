package rdq

import (
	"context"
	"time"

	"google.golang.org/grpc"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// boundedConn gives unary calls a deadline that their context does not have.
type boundedConn struct {
	grpc.ClientConnInterface
	deadline time.Duration
}

func (c boundedConn) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if _, isBounded := ctx.Deadline(); !isBounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.deadline)
		defer cancel()
	}
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
}

// SignalService is the generated stub of signals; see [Client.TaskService].
func (c *Client) SignalService() rdqv1.SignalServiceClient {
	return rdqv1.NewSignalServiceClient(c.calls)
}

// StreamService is the generated stub of streams of events; see [Client.TaskService]. [Client.Subscribe] reads a stream.
// Publish may not be repeated after a lost answer.
func (c *Client) StreamService() rdqv1.StreamServiceClient {
	return rdqv1.NewStreamServiceClient(c.calls)
}

// LockService is the generated stub of locks; see [Client.TaskService]. [Client.Lock] keeps a lock.
func (c *Client) LockService() rdqv1.LockServiceClient { return rdqv1.NewLockServiceClient(c.calls) }

// ScheduleService is the generated stub of schedules; see [Client.TaskService].
func (c *Client) ScheduleService() rdqv1.ScheduleServiceClient {
	return rdqv1.NewScheduleServiceClient(c.calls)
}

// OutboxService is the generated stub of outboxes; see [Client.TaskService]. An [OutboxRelay] delivers their messages.
func (c *Client) OutboxService() rdqv1.OutboxServiceClient {
	return rdqv1.NewOutboxServiceClient(c.calls)
}

// RecordService is the generated stub of records; see [Client.TaskService]. After a lost answer, read the record before
// a CompareAndSet is repeated.
func (c *Client) RecordService() rdqv1.RecordServiceClient {
	return rdqv1.NewRecordServiceClient(c.calls)
}

// LedgerService is the generated stub of the ledger of mutations; see [Client.TaskService]. An Execute may be repeated.
func (c *Client) LedgerService() rdqv1.LedgerServiceClient {
	return rdqv1.NewLedgerServiceClient(c.calls)
}

// TransactionService is the generated stub of transactions; see [Client.TaskService]. A Commit may be repeated after a
// lost answer if each of its operations may.
func (c *Client) TransactionService() rdqv1.TransactionServiceClient {
	return rdqv1.NewTransactionServiceClient(c.calls)
}
