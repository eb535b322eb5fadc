//! The one thread that writes. It takes every call that waits or comes until the commit, runs them in
//! one transaction, commits once, and then answers: no timer, and an idle store's call costs one commit of its own. It knows
//! nothing of what calls do. Between calls it notices what other processes committed.

use crate::{
    agenda::Agenda,
    checkpoint::{self, Checkpointer},
    clock::Deadline,
    config::OpenError,
    connection,
    coordination::{Heard, Listeners, Since},
    errors::{Failure, Sql},
    job::{Call, Job, Left, Role},
    statements::Statements,
    transaction::{Committed, Tx},
    turns::Turns,
    waiting,
};
use rdq_spi::{ClaimParams, HintHub, Result, StorageError};
use rusqlite::Connection;
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

/// Cost of what may wait in memory, in rows or KiB: more callers wait for their turn to wait.
const WAITING_COST_MAX: u32 = 1 << 16;
/// Cost of one transaction: a bound on how long a lone call waits behind others.
const BATCH_COST_MAX: u32 = 1 << 12;
/// While somebody waits for hints, other processes' commits are looked for this often.
const FOREIGN_POLL: Duration = Duration::from_millis(1);
/// What could not be looked at is looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A file that cannot be opened again is tried again this often.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

enum Message {
    Job(Box<dyn Job>),
    /// Somebody began to wait for hints.
    Watch,
    /// Somebody began to listen.
    Listen(Since),
    /// Some of those who wait have waited enough.
    Unpark,
    Close(oneshot::Sender<()>),
}

/// The handle to the thread. Dropping all of them ends the thread once everything sent to it is done.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    messages: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
}

impl Writer {
    /// Starts the thread on this connection to the file.
    pub(crate) fn start(
        path: &Path,
        db: Connection,
        mut checkpointer: Checkpointer,
        hub: Arc<HintHub>,
        listeners: Arc<Listeners>,
    ) -> std::result::Result<Self, OpenError> {
        // Statements borrow the connection, so that they are prepared there; here it is checked
        // that they can be.
        drop(Statements::prepare(&db)?);
        let (messages, inbox) = mpsc::channel();
        let path = path.to_owned();
        std::thread::Builder::new()
            .name("rdq-sqlite-writer".into())
            .spawn(move || {
                let mut db = db;
                let mut heard = Heard::default();
                let end = loop {
                    let waiters = Waiters { hub: &hub, listeners: &listeners, heard: &mut heard };
                    match serve(&db, &mut checkpointer, waiters, &inbox) {
                        End::Closed(closed) => break closed,
                        End::Broken(failure) => {
                            tracing::warn!(?failure, "the database is opened again");
                            drop(db);
                            match reopen(&path, &inbox, &mut heard) {
                                Ok(new) => db = new,
                                Err(closed) => return answer_closed(closed),
                            }
                        }
                    }
                };
                checkpoint::before_close(checkpointer, &db);
                drop(db);
                answer_closed(end);
            })
            .map_err(OpenError::Thread)?;
        Ok(Self { messages, room: Arc::new(Semaphore::new(WAITING_COST_MAX as usize)) })
    }

    /// Runs `work` in a transaction with others and answers after its commit. It may run more than
    /// once, each time on what was there before. `cost` is about the rows or the KiB it touches.
    /// Once sent it runs to its end, even if this future is dropped.
    pub(crate) async fn call<T, W>(
        &self,
        operation: &'static str,
        cost: usize,
        work: W,
    ) -> Result<T>
    where
        T: Send + 'static,
        W: Fn(&mut Tx<'_, '_>) -> Sql<T> + Send + 'static,
    {
        self.call_as(Role::Other, operation, cost, work).await
    }

    /// The same for a call of this role.
    pub(crate) async fn call_as<T, W>(
        &self,
        role: Role,
        operation: &'static str,
        cost: usize,
        work: W,
    ) -> Result<T>
    where
        T: Send + 'static,
        W: Fn(&mut Tx<'_, '_>) -> Sql<T> + Send + 'static,
    {
        self.send(role, operation, cost, |_| false, work).await
    }

    /// Makes claims that wait while `is_nothing` says so of their answer, until `enough` is cancelled.
    pub(crate) async fn call_waiting<T, W>(
        &self,
        operation: &'static str,
        (claims, enough): (Arc<[ClaimParams]>, CancellationToken),
        is_nothing: fn(&T) -> bool,
        work: W,
    ) -> Result<T>
    where
        T: Send + 'static,
        W: Fn(&mut Tx<'_, '_>) -> Sql<T> + Send + 'static,
    {
        let role = Role::WaitingClaims(claims, enough.clone());
        let call = self.send(role, operation, 1, is_nothing, work);
        let mut call = std::pin::pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = enough.cancelled() => {}
        }
        // Whoever has ended answers those who are left.
        let _ = self.messages.send(Message::Unpark);
        call.await
    }

    async fn send<T, W>(
        &self,
        role: Role,
        operation: &'static str,
        cost: usize,
        is_nothing: fn(&T) -> bool,
        work: W,
    ) -> Result<T>
    where
        T: Send + 'static,
        W: Fn(&mut Tx<'_, '_>) -> Sql<T> + Send + 'static,
    {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX).clamp(1, WAITING_COST_MAX);
        let cost = Arc::clone(&self.room)
            .acquire_many_owned(cost)
            .await
            .map_err(|_| StorageError::Closed)?;
        let (to, answer) = oneshot::channel();
        let call = Box::new(Call::new(operation, role, cost, work, is_nothing, to));
        self.messages.send(Message::Job(call)).map_err(|_| StorageError::Closed)?;
        answer.await.unwrap_or_else(|_| {
            let source = io::Error::other("the writer ended before it answered").into();
            Err(StorageError::OutcomeUnknown { operation, source })
        })
    }

    /// Says that somebody waits for hints now.
    pub(crate) fn watch(&self) -> Result<()> {
        self.tell(Message::Watch)
    }

    /// Says that somebody listens since then.
    pub(crate) fn listen(&self, since: Since) -> Result<()> {
        self.tell(Message::Listen(since))
    }

    /// Refuses if it was told to close.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.room.is_closed() { Err(StorageError::Closed) } else { Ok(()) }
    }

    fn tell(&self, message: Message) -> Result<()> {
        self.check_open()?;
        self.messages.send(message).map_err(|_| StorageError::Closed)
    }

    /// Finishes what was sent, moves the log into the file, and ends the thread.
    pub(crate) async fn close(&self) {
        self.room.close();
        let (closed, wait) = oneshot::channel();
        if self.messages.send(Message::Close(closed)).is_ok() {
            let _ = wait.await;
        }
    }
}

/// Why a thread does not serve its connection any more.
enum End {
    /// It was told to close, or nobody can send any more.
    Closed(Option<oneshot::Sender<()>>),
    /// The connection is not to be used any more.
    Broken(Failure),
}

fn answer_closed(closed: Option<oneshot::Sender<()>>) {
    if let Some(closed) = closed {
        let _ = closed.send(());
    }
}

/// Serves until the end, of this connection at least.
fn serve(
    db: &Connection,
    checkpointer: &mut Checkpointer,
    waiters: Waiters<'_>,
    inbox: &mpsc::Receiver<Message>,
) -> End {
    Checkpointer::observe(db);
    match Statements::prepare(db) {
        Ok(sql) => Thread::new(db, sql, checkpointer, waiters).serve(inbox),
        Err(error) => End::Broken(Failure::before_commit(error)),
    }
}

/// Opens the file again. As long as it cannot be, calls are answered so.
fn reopen(
    path: &Path,
    inbox: &mpsc::Receiver<Message>,
    heard: &mut Heard,
) -> std::result::Result<Connection, Option<oneshot::Sender<()>>> {
    loop {
        let opened = connection::reopen_writer(path)
            .and_then(|db| Statements::prepare(&db).map(drop).map(|()| db).map_err(Into::into));
        let failure = match opened {
            Ok(db) => return Ok(db),
            Err(error) => Failure::of_reopening(error),
        };
        let pause = Deadline::after(REOPEN_PAUSE);
        while !pause.has_passed() {
            match inbox.recv_timeout(REOPEN_PAUSE) {
                Ok(Message::Job(job)) => job.fail(&failure),
                Ok(Message::Listen(since)) => heard.begin(since),
                // Everybody who waits is told once the file is open.
                // And nobody waits for tasks: they were told that it broke.
                Ok(Message::Watch | Message::Unpark) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Close(closed)) => return Err(Some(closed)),
                Err(RecvTimeoutError::Disconnected) => return Err(None),
            }
        }
    }
}

/// What else goes into the transaction: calls that wait when its own are run, as far as it has room.
struct Arrivals<'i> {
    inbox: &'i mpsc::Receiver<Message>,
    /// Of the transaction so far.
    cost: u32,
    /// What came behind them and is no call.
    other: Option<Message>,
}

impl Arrivals<'_> {
    fn next(&mut self) -> Option<Box<dyn Job>> {
        while self.cost < BATCH_COST_MAX && self.other.is_none() {
            match self.inbox.try_recv() {
                // Who has gone must be handed nothing.
                Ok(Message::Job(job)) if job.is_abandoned() => {}
                Ok(Message::Job(job)) => {
                    self.cost = self.cost.saturating_add(job.cost());
                    return Some(job);
                }
                Ok(other) => self.other = Some(other),
                Err(_) => break,
            }
        }
        None
    }
}

/// Those who wait to be told something, and what they were told.
struct Waiters<'c> {
    hub: &'c HintHub,
    listeners: &'c Listeners,
    heard: &'c mut Heard,
}

impl Waiters<'_> {
    fn are_there(&self) -> bool {
        self.hub.is_watched() || self.listeners.are_there()
    }
}

struct Thread<'c> {
    db: &'c Connection,
    sql: Statements<'c>,
    checkpointer: &'c mut Checkpointer,
    waiters: Waiters<'c>,
    turns: Turns,
    /// Claims that wait.
    parked: Vec<Box<dyn Job>>,
    data_version: i64,
    /// When something is due next that somebody may wait for.
    next_due: Option<Deadline>,
    /// What broke the connection.
    broken: Option<Failure>,
}

impl<'c> Thread<'c> {
    fn new(
        db: &'c Connection,
        sql: Statements<'c>,
        checkpointer: &'c mut Checkpointer,
        waiters: Waiters<'c>,
    ) -> Self {
        // No version of a file is 0: the first look finds a change.
        Self {
            db,
            sql,
            checkpointer,
            waiters,
            turns: Turns::default(),
            parked: Vec::new(),
            data_version: 0,
            next_due: None,
            broken: None,
        }
    }

    /// Serves until it is told to close, until nobody can send any more, or until the connection
    /// breaks.
    fn serve(mut self, inbox: &mpsc::Receiver<Message>) -> End {
        let mut waiting = None;
        loop {
            if waiting.is_none()
                && let Some(failure) = self.broken.take()
            {
                self.parked.into_iter().for_each(|job| job.fail(&failure));
                return End::Broken(failure);
            }
            let message = match waiting.take() {
                Some(message) => message,
                None if self.waiters.are_there() => match inbox.recv_timeout(FOREIGN_POLL) {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => {
                        self.look_around();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return End::Closed(None),
                },
                None => {
                    // Whoever listens next says since when.
                    *self.waiters.heard = Heard::default();
                    match inbox.recv() {
                        Ok(message) => message,
                        Err(mpsc::RecvError) => return End::Closed(None),
                    }
                }
            };
            match message {
                Message::Job(first) if first.is_abandoned() => {}
                Message::Job(first) => {
                    let mut arrivals = Arrivals { inbox, cost: first.cost(), other: None };
                    let mut batch = std::mem::take(&mut self.parked);
                    // Who has gone must be handed nothing.
                    batch.retain(|job| !job.is_abandoned());
                    batch.push(first);
                    self.run_batch(batch, Some(&mut arrivals));
                    waiting = arrivals.other;
                    self.look_around();
                    self.checkpointer.after_commit(self.db);
                }
                Message::Watch => self.hint_watched(),
                Message::Listen(since) => self.waiters.heard.begin(since),
                Message::Unpark => {
                    let parked = std::mem::take(&mut self.parked);
                    let (parked, ended) = parked.into_iter().partition(|job| job.is_parked());
                    self.parked = parked;
                    if !ended.is_empty() {
                        self.run_batch(ended, None);
                    }
                }
                Message::Close(closed) => {
                    self.parked.into_iter().for_each(Job::close);
                    return End::Closed(Some(closed));
                }
            }
        }
    }

    fn run_batch(&mut self, mut batch: Vec<Box<dyn Job>>, arrivals: Option<&mut Arrivals<'_>>) {
        match self.run_transaction(&mut batch, arrivals) {
            Ok(committed) => {
                for job in batch {
                    if let Left::Waiting(job) = job.succeed() {
                        self.parked.push(job);
                    }
                }
                let Some(Committed { hints, news }) = committed else { return };
                for (queue, due_in) in hints {
                    self.waiters.hub.hint(&queue, due_in);
                    self.wake_in(due_in);
                }
                self.waiters.heard.tell(self.waiters.listeners, news);
            }
            // The cause may be one call's, and the others need not share its fate.
            Err(failure) if batch.len() > 1 && failure.may_be_one_calls_own() => {
                for job in batch {
                    self.run_batch(vec![job], None);
                }
            }
            Err(failure) => batch.into_iter().for_each(|job| job.fail(&failure)),
        }
    }

    fn run_transaction(
        &mut self,
        batch: &mut Vec<Box<dyn Job>>,
        arrivals: Option<&mut Arrivals<'_>>,
    ) -> Result<Option<Committed>, Failure> {
        let changes = self.db.total_changes();
        let begun = self.sql.state.begin_immediate.execute([]).map_err(Failure::before_commit);
        let committed = begun.and_then(|_| {
            let ran = run(self.db, &mut self.sql, &mut self.turns, changes, batch, arrivals)?;
            if ran.is_some() {
                self.sql.state.commit.execute([]).map_err(Failure::of_commit)?;
            } else {
                self.sql.state.rollback.execute([]).map_err(Failure::before_commit)?;
            }
            Ok(ran)
        });
        if let Err(failure) = &committed {
            // SQLite may have rolled back already.
            if !self.db.is_autocommit()
                && let Err(error) = self.sql.state.rollback.execute([])
            {
                tracing::error!(%error, "a failed transaction could not be rolled back");
            }
            tracing::warn!(?failure, calls = batch.len(), "a transaction failed");
            if failure.is_of_connection() || !self.db.is_autocommit() {
                self.broken = Some(failure.clone());
            }
        }
        committed
    }

    /// Other processes send no hints; the file's version says that they have been here. And what
    /// was known to be due later is due at last.
    fn look_around(&mut self) {
        if !self.waiters.are_there() {
            return;
        }
        let others_wrote = match self.sql.state.data_version.query_row([], |row| row.get(0)) {
            Ok(version) => std::mem::replace(&mut self.data_version, version) != version,
            Err(error) => return self.could_not_look(error),
        };
        if others_wrote || self.next_due.is_some_and(Deadline::has_passed) {
            self.hint_watched();
        }
        if others_wrote || self.waiters.heard.is_due() {
            let looked = self.waiters.heard.look(&mut self.sql, self.waiters.listeners);
            if let Err(error) = looked {
                self.waiters.heard.look_again_in(LOOK_AGAIN);
                self.could_not_look(error);
            }
        }
    }

    fn hint_watched(&mut self) {
        match waiting::hint_watched(&mut self.sql, self.waiters.hub) {
            Ok(next_due_in) => {
                self.next_due = None;
                if let Some(due_in) = next_due_in {
                    self.wake_in(due_in);
                }
            }
            Err(error) => self.could_not_look(error),
        }
    }

    /// Nobody was told anything: they are later.
    fn could_not_look(&mut self, error: rusqlite::Error) {
        tracing::warn!(%error, "what somebody waits for could not be read");
        self.next_due = Some(Deadline::after(LOOK_AGAIN));
        let failure = Failure::before_commit(error);
        if failure.is_of_connection() {
            self.broken = Some(failure);
        }
    }

    fn wake_in(&mut self, due_in: Duration) {
        if !due_in.is_zero() {
            let due = Deadline::after(due_in);
            self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
        }
    }
}

fn run<'c>(
    db: &'c Connection,
    sql: &mut Statements<'c>,
    turns: &mut Turns,
    changes_before: u64,
    batch: &mut Vec<Box<dyn Job>>,
    mut arrivals: Option<&mut Arrivals<'_>>,
) -> Result<Option<Committed>, Failure> {
    let mut run = || -> Sql<Option<Committed>> {
        let mut tx = Tx::start(db, sql, turns)?;
        let mut agenda = Agenda::default();
        loop {
            // What came meanwhile shares the commit, such as the claim of a task to be admitted.
            batch.extend(std::iter::from_fn(|| arrivals.as_mut()?.next()));
            agenda.add(&mut tx, batch);
            let Some(call) = agenda.next(&mut tx, batch)? else { break };
            tx.handoffs.begin(call);
            batch[call].run(&mut tx)?;
        }
        agenda.pass_the_rest(batch);
        // What changed nothing needs no commit of its own, and no sync.
        if tx.changed_nothing_since(changes_before) { Ok(None) } else { tx.finish().map(Some) }
    };
    run().map_err(Failure::before_commit)
}
