//! The writer's statements, prepared once: one file each in `queries/`. Nothing here runs one.

use crate::errors::Sql;
use rusqlite::{Connection, PrepFlags, Statement};

macro_rules! statements {
    ($(#[$doc:meta])* $group:ident, $texts:ident { $($name:ident),* $(,)? }) => {
        $(#[$doc])*
        pub(crate) struct $group<'c> { $(pub(crate) $name: Statement<'c>),* }

        impl<'c> $group<'c> {
            pub(crate) fn prepare(db: &'c Connection) -> Sql<Self> {
                // They stay: SQLite takes their memory from elsewhere than from the little that a
                // connection keeps at hand for what is soon given back.
                let flags = PrepFlags::SQLITE_PREPARE_PERSISTENT;
                Ok(Self { $($name: db.prepare_with_flags(text!($name), flags)?),* })
            }
        }

        #[cfg(test)]
        pub(crate) const $texts: &[(&str, &str)] = &[$((stringify!($name), text!($name))),*];
    };
}

/// The text of a query.
macro_rules! text {
    ($name:ident) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/queries/",
            stringify!($name),
            ".sql"
        ))
    };
}
pub(crate) use text;

/// All that the writer runs.
pub(crate) struct Statements<'c> {
    pub(crate) state: StateStatements<'c>,
    pub(crate) tasks: TaskStatements<'c>,
    pub(crate) history: HistoryStatements<'c>,
    pub(crate) queues: QueueStatements<'c>,
    pub(crate) coordination: CoordinationStatements<'c>,
}

impl<'c> Statements<'c> {
    /// Prepares them.
    pub(crate) fn prepare(db: &'c Connection) -> Sql<Self> {
        Ok(Self {
            state: StateStatements::prepare(db)?,
            tasks: TaskStatements::prepare(db)?,
            history: HistoryStatements::prepare(db)?,
            queues: QueueStatements::prepare(db)?,
            coordination: CoordinationStatements::prepare(db)?,
        })
    }
}

statements! {
    /// The transaction's own.
    StateStatements, STATE {
        begin_immediate, commit, rollback, savepoint, rollback_to, release,
        data_version, state, put_state, touch,
    }
}
statements! {
    /// Tasks.
    TaskStatements, TASKS {
        insert_task, insert_claimed_task, put_body, body, put_carried_history,
        task, task_by_id, claim_task, update_task, complete_task, put_progress, put_result,
        forget_task, delete_whole_task, delete_task, delete_body,
        next_due, promote, ready_tasks,
        dead_tasks, expired_tasks, finished_tasks, purgeable_tasks, dead_tasks_of_queue,
    }
}
statements! {
    /// Histories.
    HistoryStatements, HISTORY {
        history, put_history, put_attempt, next_attempt, newest_attempts,
        delete_attempt, delete_attempts, delete_history,
    }
}
statements! {
    /// Queues and secrets.
    QueueStatements, QUEUES {
        queue_by_name, queue_name, insert_queue, free_queue_number, insert_numbered_queue,
        add_counts, counts, forget_empty_queues,
        put_queue, delete_queue, put_secret, secret,
    }
}
statements! {
    /// Signals, streams, locks, records and the ledger.
    CoordinationStatements, COORDINATION {
        stream, insert_stream, put_last_offset, insert_event, save_offset, trim,
        notify, forget_notifications, put_forgotten, notified, notifications,
        lock, put_lock,
        record, insert_record, put_record, remove_record,
        insert_mutation, prune_mutations,
    }
}
