//! The operations of a transaction, in their order, on a connection that is inside one. Consecutive
//! ones of one kind are one statement, unless a later one of them is about what an earlier one is.

use crate::{
    coordination::{
        ledger, records, streams,
        tasks::{self, Dues},
    },
    errors::Sql,
    token::StoreId,
};
use rdq_spi::{
    Applied, ConsumerName, Operation, RecordKey, Rejected, Result, StreamName, TaskId, Topic,
};
use sqlx::{PgConnection, raw_sql};
use std::{
    collections::{BTreeSet, HashSet},
    hash::Hash,
    mem::discriminant,
    ops::Range,
};

/// What is to be told once a transaction is committed.
#[derive(Debug, Clone, Default)]
pub(crate) struct News {
    /// Channels that were notified.
    pub(crate) notified: BTreeSet<Topic>,
    /// Streams with new events.
    pub(crate) published: BTreeSet<StreamName>,
    /// Tasks that are due.
    pub(crate) dues: Dues,
}

impl News {
    /// What operations that follow have to tell, too.
    pub(crate) fn extend(&mut self, more: Self) {
        self.notified.extend(more.notified);
        self.published.extend(more.published);
        self.dues.extend(more.dues);
    }
}

/// Operations that were applied.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The answer to each.
    pub(crate) applied: Vec<Applied>,
    /// What they have to tell.
    pub(crate) news: News,
}

/// Applies the operations of one call up to the first that fails.
pub(crate) async fn apply(
    db: &mut PgConnection,
    store_id: StoreId,
    operations: &[Operation],
) -> Sql<Result<Done, Rejected>> {
    let observed = match Operation::observation(operations) {
        Ok(observed) => observed,
        Err(rejected) => return Ok(Err(rejected)),
    };
    let mut done = Done::default();
    for run in runs(operations, discriminant, key) {
        let start = run.start;
        let answers = apply_run(db, store_id, &operations[run], &mut done.news).await?;
        for (index, answer) in (start..).zip(answers) {
            match answer {
                Ok(applied) => done.applied.push(applied),
                Err(error) => return Ok(Err(Rejected { index: Some(index), error })),
            }
        }
    }
    if let (Some(mutation), Some((_, effects))) = (observed, done.applied.split_first()) {
        ledger::keep_answers(db, &mutation.scope, effects).await?;
    }
    Ok(Ok(done))
}

/// Applies all of these operations, or none and leaves the transaction as it was.
pub(crate) async fn apply_or_undo(
    db: &mut PgConnection,
    store_id: StoreId,
    operations: &[Operation],
) -> Sql<Result<Done, Rejected>> {
    if !needs_savepoint(operations) {
        return apply(db, store_id, operations).await;
    }
    raw_sql("SAVEPOINT rdq").execute(&mut *db).await?;
    let applied = apply(db, store_id, operations).await;
    end_savepoint(db, matches!(applied, Ok(Ok(_)))).await?;
    applied
}

/// Whether something may be left to undo if these fail, but for what ends the transaction. Whoever
/// publishes holds others up until the commit: the fewer steps, the better.
pub(crate) fn needs_savepoint(operations: &[Operation]) -> bool {
    let is_alone = operations.len() < 2;
    operations.iter().any(|operation| match operation {
        Operation::Publish(_) | Operation::Notify(_) | Operation::SaveOffset(_) => false,
        // One that is refused has changed nothing.
        Operation::CompareAndSet(_) | Operation::Cancel(_) | Operation::Observe(_) => !is_alone,
        // What the database cannot store ends the transaction unless it is undone.
        Operation::Enqueue(_) | Operation::Resolve(_) => true,
    })
}

/// Keeps or undoes what was done since the savepoint, and forgets it.
pub(crate) async fn end_savepoint(db: &mut PgConnection, is_kept: bool) -> Sql<()> {
    let end = if is_kept {
        "RELEASE SAVEPOINT rdq"
    } else {
        "ROLLBACK TO SAVEPOINT rdq; RELEASE SAVEPOINT rdq"
    };
    raw_sql(end).execute(db).await?;
    Ok(())
}

/// What no two operations of one statement may be about.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Task(&'a TaskId),
    Offset(&'a StreamName, &'a ConsumerName),
    Record(&'a RecordKey),
}

fn key(operation: &Operation) -> Option<Key<'_>> {
    match operation {
        Operation::Enqueue(task) => Some(Key::Task(&task.id)),
        Operation::Cancel(task) => Some(Key::Task(task)),
        Operation::Resolve(resolution) => Some(Key::Task(&resolution.claim.task_id)),
        Operation::SaveOffset(save) => Some(Key::Offset(&save.stream, &save.consumer)),
        Operation::CompareAndSet(change) => Some(Key::Record(&change.key)),
        Operation::Publish(_) | Operation::Notify(_) | Operation::Observe(_) => None,
    }
}

/// Cuts items into runs of one kind in which no key comes twice.
pub(crate) fn runs<'a, T, D: PartialEq, K: Eq + Hash>(
    items: &'a [T],
    kind: impl Fn(&T) -> D,
    key: impl Fn(&'a T) -> Option<K>,
) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut keys = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let is_of_kind = |run: &&mut Range<usize>| kind(&items[run.start]) == kind(item);
        let key = key(item);
        let is_repeated = key.as_ref().is_some_and(|key| keys.contains(key));
        match runs.last_mut().filter(is_of_kind) {
            Some(run) if !is_repeated => run.end = index + 1,
            _ => {
                keys.clear();
                runs.push(index..index + 1);
            }
        }
        keys.extend(key);
    }
    runs
}

/// The operations of a run, each by what it holds.
macro_rules! all {
    ($run:expr, $kind:ident) => {
        $run.iter()
            .filter_map(|operation| match operation {
                Operation::$kind(it) => Some(it),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
}

async fn apply_run(
    db: &mut PgConnection,
    store_id: StoreId,
    run: &[Operation],
    news: &mut News,
) -> Sql<Vec<Result<Applied>>> {
    fn each<T>(answers: Vec<Result<T>>, applied: fn(T) -> Applied) -> Vec<Result<Applied>> {
        answers.into_iter().map(|answer| answer.map(applied)).collect()
    }
    Ok(match run.first() {
        None => Vec::new(),
        Some(Operation::Enqueue(_)) => {
            let admitted = tasks::enqueue(db, &all!(run, Enqueue), &mut news.dues).await?;
            each(admitted, Applied::Enqueued)
        }
        Some(Operation::Cancel(_)) => {
            each(tasks::cancel(db, &all!(run, Cancel)).await?, Applied::Cancelled)
        }
        Some(Operation::Resolve(_)) => {
            let resolutions = all!(run, Resolve);
            let resolved = tasks::resolve(db, store_id, &resolutions, &mut news.dues).await?;
            each(resolved, Applied::Resolved)
        }
        Some(Operation::Publish(_)) => {
            let events = all!(run, Publish);
            let offsets = streams::publish(db, &events).await?;
            news.published.extend(events.into_iter().map(|event| event.stream.clone()));
            offsets.into_iter().map(|offset| Ok(Applied::Published(offset))).collect()
        }
        Some(Operation::Notify(_)) => {
            let channels = all!(run, Notify);
            news.notified.extend(channels.into_iter().cloned().map(Topic::Channel));
            run.iter().map(|_| Ok(Applied::Notified)).collect()
        }
        Some(Operation::SaveOffset(_)) => {
            each(streams::save_offsets(db, &all!(run, SaveOffset)).await?, Applied::OffsetSaved)
        }
        Some(Operation::CompareAndSet(_)) => {
            let changed = records::compare_and_set(db, &all!(run, CompareAndSet)).await?;
            each(changed, Applied::Recorded)
        }
        // It is alone, and keeps the others' answers once they have them.
        Some(Operation::Observe(mutation)) => vec![ledger::observe(db, mutation).await?],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_where_the_kind_changes_or_a_key_comes_again() {
        let kind = |item: &(char, u32)| item.0;
        let key = |item: &(char, u32)| (item.1 > 0).then_some(item.1);
        let items =
            [('a', 1), ('a', 2), ('a', 1), ('a', 2), ('b', 2), ('b', 0), ('b', 0), ('a', 1)];
        assert_eq!(runs(&items, kind, key), [0..2, 2..4, 4..7, 7..8]);
        assert_eq!(runs(&items[..0], kind, key), []);
    }
}
