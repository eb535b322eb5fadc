// Command interop enqueues and works the tasks by which clients of different languages are tested against each other;
// ../../../README.md says what is in them.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	rdq "github.com/rdq-project/rdq/clients/go"
)

const (
	handlerRef = "interop.echo"
	greeting   = "🚀 ñ مرحبا"
	workWithin = 60 * time.Second
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("say produce or work")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ExitOnError)
	server := flags.String("server", "127.0.0.1:7420", "the server, `HOST:PORT`")
	queue := flags.String("queue", "interop", "the queue")
	prefix := flags.String("prefix", "go", "how ids begin")
	count := flags.Int("count", 1, "the number of tasks")
	_ = flags.Parse(arguments[1:])
	client, err := rdq.NewClient(*server, rdq.ClientOptions{})
	if err != nil {
		return err
	}
	defer client.Close()
	switch arguments[0] {
	case "produce":
		return produce(client, *queue, *prefix, *count)
	case "work":
		return work(client, *queue, *count)
	default:
		return fmt.Errorf("%q is neither produce nor work", arguments[0])
	}
}

func payload(id string) []byte {
	payload := append([]byte(id), 0)
	payload = append(payload, greeting...)
	for i := range 256 {
		payload = append(payload, byte(i))
	}
	return payload
}

func produce(client *rdq.Client, queue, prefix string, count int) error {
	tasks := make([]rdq.NewTask, count)
	for i := range tasks {
		id := fmt.Sprintf("%s-%d", prefix, i+1)
		tasks[i] = rdq.NewTask{
			Queue: queue, HandlerRef: handlerRef, ID: id, Payload: payload(id),
			Headers: map[string]string{"language": "go", "greeting": greeting},
		}
	}
	_, err := client.EnqueueMany(context.Background(), tasks)
	return err
}

// work handles tasks until so many succeeded, or one failed, or the time is over.
func work(client *rdq.Client, queue string, count int) error {
	ctx, end := context.WithTimeoutCause(context.Background(), workWithin, errors.New("not every task came in time"))
	defer end()
	working, stop := context.WithCancelCause(ctx)
	var succeeded atomic.Int64
	worker := rdq.NewWorker(client, rdq.WorkerOptions{Queues: []string{queue}})
	worker.Handle(handlerRef, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		if err := check(claim); err != nil {
			stop(err)
			return nil, rdq.Permanent(err)
		}
		if succeeded.Add(1) == int64(count) {
			stop(nil)
		}
		sum := sha256.Sum256(claim.Payload)
		return sum[:], nil
	})
	// It returns once every outcome is answered.
	if err := worker.Run(working); err != nil {
		return err
	}
	if cause := context.Cause(working); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func check(claim *rdq.Claim) error {
	if !bytes.Equal(claim.Payload, payload(claim.ID)) {
		return fmt.Errorf("%s has another payload", claim.ID)
	}
	if claim.Headers["greeting"] != greeting {
		return fmt.Errorf("%s has the greeting %q", claim.ID, claim.Headers["greeting"])
	}
	return nil
}
