// Command mail is a whole service: it enqueues mails, sends them with a worker that knows which failures are worth a
// repetition, and ends when all are sent or dead. Its server is that of RDQ_SERVER.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	rdq "github.com/rdq-project/rdq/clients/go"
)

// A mail is what the payload of a task has.
type mail struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

var errBusy = errors.New("the mail server is busy")

func main() {
	// SIGTERM and SIGINT end the context; the worker drains then.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := rdq.NewClient(os.Getenv("RDQ_SERVER"), rdq.ClientOptions{})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.PutQueue(ctx, "mail", rdq.QueueConfig{
		MaxAttempts: new(3), InitialBackoff: new(100 * time.Millisecond), Lease: new(30 * time.Second),
	}); err != nil {
		return err
	}
	if err := enqueue(ctx, client); err != nil {
		return err
	}

	worker := rdq.NewWorker(client, rdq.WorkerOptions{Queues: []string{"mail"}, Concurrency: 4, Grace: 20 * time.Second})
	worker.Handle("send", send)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }()
	watched := watch(ctx, client)
	stop()
	return errors.Join(watched, <-ended)
}

func enqueue(ctx context.Context, client *rdq.Client) error {
	var tasks []rdq.NewTask
	for _, to := range []string{"ana@example.com", "busy@example.com", "not an address"} {
		payload, err := json.Marshal(mail{To: to, Text: "hello"})
		if err != nil {
			return err
		}
		tasks = append(tasks, rdq.NewTask{
			Queue: "mail", HandlerRef: "send", Payload: payload, ContentType: "application/json",
		})
	}
	_, err := client.EnqueueMany(ctx, tasks)
	return err
}

// send is the handler.
func send(_ context.Context, claim *rdq.Claim) ([]byte, error) {
	var mail mail
	if err := json.Unmarshal(claim.Payload, &mail); err != nil {
		return nil, rdq.Permanent(err)
	}
	switch {
	case mail.To == "not an address":
		return nil, rdq.Permanent(rdq.WithType("mail.address", fmt.Errorf("%q is not an address", mail.To)))
	case mail.To == "busy@example.com" && claim.AttemptNo == 1:
		return nil, rdq.RetryAfter(50*time.Millisecond, errBusy)
	default:
		return []byte("sent"), nil
	}
}

// watch waits until nothing is left to do, and shows what became of the mails.
func watch(ctx context.Context, client *rdq.Client) error {
	for {
		stats, err := client.Stats(ctx, "mail")
		if err != nil {
			return err
		}
		if stats[0].Pending+stats[0].InFlight == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	for task, err := range client.List(ctx, "mail", rdq.ListOptions{IncludeAttempts: true}) {
		if err != nil {
			return err
		}
		fmt.Printf("%s after %d attempts\n", task.Status, len(task.Attempts))
	}
	return nil
}
