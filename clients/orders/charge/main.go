// Charge works the tasks of orders. What it charged is in a ledger, in the transaction that charges: so a task that
// comes again, after a crash or a lost answer, charges nothing.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/lib/pq"

	rdq "github.com/rdq-project/rdq/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	shop, err := sql.Open("postgres", os.Getenv("SHOP_DATABASE"))
	if err != nil {
		log.Fatal(err)
	}
	defer shop.Close()
	client, err := rdq.NewClient(os.Getenv("RDQ_SERVER"), rdq.ClientOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	// A claim that was lost on its way, with the server that made it, ends with its lease.
	worker := rdq.NewWorker(client, rdq.WorkerOptions{Queues: []string{"charges"}, Lease: 10 * time.Second})
	worker.Handle("charge", func(ctx context.Context, claim *rdq.Claim) ([]byte, error) {
		var order struct {
			Order string
			Cents int64
		}
		if err := json.Unmarshal(claim.Payload, &order); err != nil {
			return nil, rdq.Permanent(err)
		}
		// An error, such as that of a database that is away, is an attempt: the task comes again.
		return nil, charge(ctx, shop, order.Order, order.Cents)
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func charge(ctx context.Context, shop *sql.DB, order string, cents int64) error {
	transaction, err := shop.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer transaction.Rollback() // of no effect after the commit
	entry, err := transaction.ExecContext(ctx, "INSERT INTO charges VALUES ($1, $2) ON CONFLICT DO NOTHING", order, cents)
	if err != nil {
		return err
	}
	if entries, err := entry.RowsAffected(); err != nil {
		return err
	} else if entries == 0 {
		log.Printf("%s again", order)
		return nil
	}
	if _, err := transaction.ExecContext(ctx, "UPDATE revenue SET cents = cents + $1", cents); err != nil {
		return err
	}
	return transaction.Commit()
}
