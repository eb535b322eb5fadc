//! Batches without two of one task: a statement judges each task once, so what follows on another
//! item of its batch takes a round of its own.

use rdq_spi::{StorageError, TaskId};
use std::collections::HashSet;

/// The indexes of the items of each round, in order; mostly there is one round.
pub(crate) fn rounds<T>(items: &[T], id: impl Fn(&T) -> &TaskId) -> Vec<Vec<usize>> {
    let mut rounds: Vec<(HashSet<&TaskId>, Vec<usize>)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        // An item goes behind every earlier one of its task.
        let behind = rounds.iter().rposition(|(ids, _)| ids.contains(id(item)));
        let round = behind.map_or(0, |round| round + 1);
        if round == rounds.len() {
            rounds.push(Default::default());
        }
        let (ids, indexes) = &mut rounds[round];
        ids.insert(id(item));
        indexes.push(index);
    }
    rounds.into_iter().map(|(_, indexes)| indexes).collect()
}

/// The failure of a round as the answer to each of its items.
pub(crate) fn repeated(error: &StorageError, operation: &'static str) -> StorageError {
    let source = error.to_string().into();
    match error {
        StorageError::Closed => StorageError::Closed,
        StorageError::Contention { .. } => StorageError::Contention { operation },
        StorageError::Full { .. } => StorageError::Full { source },
        StorageError::Unavailable { .. } => StorageError::Unavailable { operation, source },
        StorageError::OutcomeUnknown { .. } => StorageError::OutcomeUnknown { operation, source },
        _ => StorageError::Internal { operation, source },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_one_task_keeps_its_order_over_the_rounds() {
        let ids = ["a", "b", "a", "c", "a", "b"].map(|id| TaskId::new(id).unwrap());
        assert_eq!(rounds(&ids, |id| id), [vec![0, 1, 3], vec![2, 5], vec![4]]);
        assert!(rounds(&ids[..0], |id| id).is_empty());
    }
}
