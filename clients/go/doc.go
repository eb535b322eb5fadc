// Package rdq is the client of rdq, a durable task, retry and coordination service: producers enqueue tasks, workers
// handle them under leases, operators look after queues and dead letters.
//
// A [Client] speaks to one server, or to several behind one name. It enqueues ([Client.Enqueue], [Client.EnqueueMany])
// and has the operator's calls. Every unary call is repeated, where repeating helps and is safe, within one deadline;
// see [ClientOptions.Deadline]. A [Worker] receives claims of tasks and runs the [Handler] that each names.
//
// [Client.Subscribe] reads a stream of events, [Client.Lock] keeps a lock, an [OutboxRelay] carries messages elsewhere. All
// else of the contract is called by its stubs, such as [Client.TransactionService].
//
// Errors of the service are of type [*Error]; a [Reason] tells them apart:
//
//	if errors.Is(err, rdq.ErrIDConflict) { … }
//
// The package keeps no state outside of these types, and never logs a payload, a result or the value of a header.
package rdq
