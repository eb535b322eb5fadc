//! Moves the log back into the file, off the commits' path: a thread with a connection of its own
//! does most of it while the writer goes on. Only when the log has grown large does the writer stop
//! to do the rest between two transactions, since the log can begin anew only when all is moved.

use crate::{
    config::OpenError,
    connection,
    errors::{Sql, breaks_connection},
};
use rusqlite::Connection;
use std::{
    cell::Cell,
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError},
    thread::JoinHandle,
    time::Duration,
};

/// Pages of log after which the thread moves them: 4 MiB, as SQLite itself would.
const STEP_PAGES: i64 = 1_000;
/// Pages of log from which the writer helps: 32 MiB.
const HELP_PAGES: i64 = 8_000;
/// Pages of log from which its space is given back: 64 MiB. A smaller one is kept and written over,
/// which syncs faster than a file that grows.
const TRUNCATE_PAGES: i64 = 16_000;
/// Pages of log above which somebody must be reading for very long: 128 MiB.
const WARN_PAGES: i64 = 32_000;
/// How soon the thread tries again where a reader was in the way.
const RETRY: Duration = Duration::from_secs(1);

/// How long the writer's end waits for readers.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

thread_local! {
    /// Pages in the log after the writer's last commit.
    static LOG_PAGES: Cell<i64> = const { Cell::new(0) };
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    signal: SyncSender<()>,
    thread: JoinHandle<()>,
    signalled_at: i64,
    helped_at: i64,
}

impl Checkpointer {
    /// Starts the thread. It ends when the writer does.
    pub(crate) fn start(path: &Path) -> Result<Self, OpenError> {
        let db = connection::open_checkpointer(path)?;
        let path = path.to_owned();
        let (signal, signals) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("rdq-sqlite-checkpoint".into())
            .spawn(move || Thread { path, db, warned_at: 0 }.serve(&signals))
            .map_err(OpenError::Thread)?;
        Ok(Self { signal, thread, signalled_at: 0, helped_at: 0 })
    }

    /// Makes the writer's commits known to [`Self::after_commit`] of the same thread.
    pub(crate) fn observe(db: &Connection) {
        db.wal_hook(Some(|_, pages| {
            LOG_PAGES.set(pages.into());
            Ok(())
        }));
    }

    /// After each transaction of the writer, once its calls are answered.
    pub(crate) fn after_commit(&mut self, db: &Connection) {
        let pages = LOG_PAGES.get();
        if pages < self.signalled_at {
            // The log began anew.
            (self.signalled_at, self.helped_at) = (0, 0);
        }
        if pages - self.signalled_at >= STEP_PAGES {
            match self.signal.try_send(()) {
                Ok(()) | Err(TrySendError::Full(())) => self.signalled_at = pages,
                Err(TrySendError::Disconnected(())) => {}
            }
        }
        if pages - self.helped_at >= HELP_PAGES {
            match checkpoint(db, "PASSIVE") {
                // The thread holds the lock: what it leaves is done after the next transaction.
                Ok(Log { busy: true, .. }) => {}
                Ok(_) => self.helped_at = pages,
                Err(error) => {
                    self.helped_at = pages;
                    tracing::warn!(%error, "the log could not be moved into the database");
                }
            }
        }
    }
}

/// Moves all that can be moved when the writer ends. Its connection is closed after that one of the
/// thread: the last one removes the log.
pub(crate) fn before_close(checkpointer: Checkpointer, db: &Connection) {
    let Checkpointer { signal, thread, .. } = checkpointer;
    drop(signal);
    if thread.join().is_err() {
        tracing::error!("the thread that moves the log into the database panicked");
    }
    // Other processes may be reading; whoever closes last moves the rest.
    let moved = db.busy_timeout(CLOSE_WAIT).and_then(|()| checkpoint(db, "TRUNCATE"));
    if let Err(error) = moved {
        tracing::debug!(%error, "the log stays beside the database");
    }
}

struct Thread {
    path: PathBuf,
    db: Connection,
    warned_at: i64,
}

impl Thread {
    fn serve(mut self, signals: &mpsc::Receiver<()>) {
        let mut unfinished = false;
        loop {
            let signal = if unfinished {
                signals.recv_timeout(RETRY)
            } else {
                signals.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            if signal == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            unfinished = match checkpoint(&self.db, "PASSIVE") {
                Ok(log) => {
                    self.warn_of_long_reader(log);
                    log.moved < log.pages || (log.pages >= TRUNCATE_PAGES && self.truncate())
                }
                Err(error) => {
                    tracing::warn!(%error, "the log could not be moved into the database");
                    self.reopen(&error);
                    true
                }
            };
        }
    }

    /// Tries the next time with a new connection, if it is this one that fails.
    fn reopen(&mut self, error: &rusqlite::Error) {
        if breaks_connection(error) {
            match connection::open_checkpointer(&self.path) {
                Ok(db) => self.db = db,
                Err(error) => tracing::debug!(%error, "the database cannot be opened again"),
            }
        }
    }

    /// Gives a large log's space back once nobody needs it. Says whether that is still to be done.
    fn truncate(&self) -> bool {
        !matches!(checkpoint(&self.db, "TRUNCATE"), Ok(Log { busy: false, .. }))
    }

    fn warn_of_long_reader(&mut self, log: Log) {
        if log.pages < WARN_PAGES {
            self.warned_at = 0;
        } else if log.pages >= (self.warned_at * 2).max(WARN_PAGES) {
            self.warned_at = log.pages;
            tracing::warn!(
                pages = log.pages,
                moved = log.moved,
                "the write-ahead log keeps growing: a connection has been reading for very long"
            );
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Log {
    busy: bool,
    pages: i64,
    moved: i64,
}

fn checkpoint(db: &Connection, mode: &str) -> Sql<Log> {
    db.query_row(&format!("PRAGMA wal_checkpoint({mode});"), [], |row| {
        Ok(Log { busy: row.get(0)?, pages: row.get(1)?, moved: row.get(2)? })
    })
}
