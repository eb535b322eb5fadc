package rdq

import (
	"errors"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	// defaultDeadline bounds a unary call, all its tries included.
	defaultDeadline = 30 * time.Second
	// tryWithin bounds a single try.
	tryWithin = 10 * time.Second
	// A connection that is silent for pingAfter while calls are open is asked whether it lives, and closed if it does
	// not say so within pingWithin.
	pingAfter, pingWithin = 15 * time.Second, 10 * time.Second
	// answerBytesMax is more than any answer of the contract has, which is 3.5 MiB.
	answerBytesMax = 8 << 20
)

// ClientOptions are the optional settings of a [Client]. The zero value is ready for use.
type ClientOptions struct {
	// TransportCredentials secure the connection; nil means plaintext.
	TransportCredentials credentials.TransportCredentials
	// Deadline bounds each unary call, all its tries and the waits between them included; 30 seconds if 0. A single
	// try never takes more than 10 seconds. The context of a call can shorten it, not lengthen it.
	Deadline time.Duration
	// DialOptions are handed to gRPC after the package's own, for instance interceptors.
	DialOptions []grpc.DialOption
}

// A Client enqueues tasks and makes the operator's calls. It is safe for use by many goroutines, and one is enough for
// a process.
type Client struct {
	tasks    rdqv1.TaskServiceClient
	queues   rdqv1.QueueServiceClient
	calls    grpc.ClientConnInterface // of the other services
	deadline time.Duration
	conn     *grpc.ClientConn // nil if it is the caller's
}

// NewClient makes a client of the server at target, "host:port" or any other name that gRPC resolves. It connects at the
// first call; an error says that target or the options are not valid.
func NewClient(target string, options ClientOptions) (*Client, error) {
	if target == "" {
		return nil, errors.New("rdq: no target")
	}
	creds := options.TransportCredentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytesMax)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWithin}),
		// Short, for the backoff that counts is that of the calls.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDisableServiceConfig(),
	}
	conn, err := grpc.NewClient(target, append(dial, options.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	client := NewClientFromConn(conn, options)
	client.conn = conn
	return client, nil
}

// NewClientFromConn makes a client of a connection of the caller's, who closes it. Of the options only Deadline counts.
func NewClientFromConn(conn grpc.ClientConnInterface, options ClientOptions) *Client {
	deadline := options.Deadline
	if deadline <= 0 {
		deadline = defaultDeadline
	}
	bounded := boundedConn{conn, deadline}
	return &Client{
		tasks:    rdqv1.NewTaskServiceClient(bounded),
		queues:   rdqv1.NewQueueServiceClient(bounded),
		calls:    bounded,
		deadline: deadline,
	}
}

// Close closes the connection that NewClient made. Calls under way fail; stop workers first.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// TaskService is the generated stub, for calls that this package has no method for. As every stub of a client it goes by
// the client's connection and gives a unary call the client's deadline where its context has none. It repeats nothing,
// since not every call may be repeated, and its errors are gRPC statuses: [FromError] makes an [*Error] of one.
func (c *Client) TaskService() rdqv1.TaskServiceClient { return c.tasks }

// QueueService is the generated stub of the queue configuration; see [Client.TaskService].
func (c *Client) QueueService() rdqv1.QueueServiceClient { return c.queues }
