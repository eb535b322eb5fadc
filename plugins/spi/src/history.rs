//! How a history stays bounded, alike on every backend. Pure.

use crate::Attempt;

/// A history holds at most this many records; the middle ones are folded into one.
pub const HISTORY_RECORDS_MAX: u32 = 10_000;

/// A history's text weighs at most this (see [`Attempt::len_bytes`]): the oldest stacks go first,
/// then details, then messages. Low enough for every backend's document limit and for one answer.
pub const HISTORY_BYTES_MAX: usize = 1 << 20;

/// A claim carries the newest records only.
pub const CLAIM_ATTEMPTS_MAX: usize = 100;

/// Cuts the oldest records' text until the history weighs at most `bytes_max`: stacks first, then
/// details, then messages, then what the worker sent beside the known fields. Returns the indexes
/// of the records that changed, in order; empty if nothing had to go.
pub fn shed(attempts: &mut [Attempt], bytes_max: usize) -> Vec<usize> {
    let mut total: usize = attempts.iter().map(Attempt::len_bytes).sum();
    let mut changed = std::collections::BTreeSet::new();
    let cuts: [fn(&mut Attempt) -> usize; 4] = [
        |attempt| take(attempt.error.as_mut().map(|error| &mut error.stack)),
        |attempt| take(attempt.error.as_mut().map(|error| &mut error.detail)),
        |attempt| take(attempt.error.as_mut().map(|error| &mut error.message)),
        |attempt| std::mem::take(&mut attempt.extra).len(),
    ];
    for cut in cuts {
        for (index, attempt) in attempts.iter_mut().enumerate() {
            if total <= bytes_max {
                return changed.into_iter().collect();
            }
            let gone = cut(attempt);
            if gone > 0 {
                total -= gone;
                changed.insert(index);
            }
        }
    }
    changed.into_iter().collect()
}

fn take(text: Option<&mut String>) -> usize {
    text.map_or(0, |text| std::mem::take(text).len())
}

/// Where a history of `records` records is folded before one more is appended: the record at
/// `index` is folded into the one at `index - 1`, which becomes (or is) the folded one. `None`
/// while there is room. The first half stays as it was, and the newest half stays whole.
pub fn fold_at(records: u32) -> Option<usize> {
    (records >= HISTORY_RECORDS_MAX).then_some(HISTORY_RECORDS_MAX as usize / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttemptError;

    fn attempt(no: u32) -> Attempt {
        let error = AttemptError {
            error_type: "t".into(),
            message: "m".repeat(10),
            detail: "d".repeat(10),
            stack: "s".repeat(10),
        };
        Attempt {
            attempt_no: no,
            started_at: None,
            finished_at: None,
            outcome: None,
            worker_id: None,
            error: Some(error),
            extra: bytes::Bytes::new(),
            folded_count: 0,
        }
    }

    #[test]
    fn the_oldest_stacks_go_first_then_details_then_messages() {
        let lens = |attempts: &[Attempt]| -> Vec<_> {
            let errors = attempts.iter().filter_map(|attempt| attempt.error.as_ref());
            errors
                .map(|error| (error.stack.len(), error.detail.len(), error.message.len()))
                .collect()
        };
        for (bytes_max, expected, changed) in [
            (62, vec![(10, 10, 10), (10, 10, 10)], vec![]),
            (61, vec![(0, 10, 10), (10, 10, 10)], vec![0]),
            (41, vec![(0, 0, 10), (0, 10, 10)], vec![0, 1]),
            (12, vec![(0, 0, 0), (0, 0, 10)], vec![0, 1]),
            (0, vec![(0, 0, 0), (0, 0, 0)], vec![0, 1]),
        ] {
            let mut attempts = [attempt(1), attempt(2)];
            assert_eq!(shed(&mut attempts, bytes_max), changed, "{bytes_max}");
            assert_eq!(lens(&attempts), expected, "{bytes_max}");
        }
    }

    #[test]
    fn a_full_history_folds_in_its_middle() {
        assert_eq!(fold_at(HISTORY_RECORDS_MAX - 1), None);
        assert_eq!(fold_at(HISTORY_RECORDS_MAX), Some(5_000));
    }
}
