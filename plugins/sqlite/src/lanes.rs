//! Where tasks stand in the one index that orders them, and the keys that place them in the table.
//! Pure.

use rdq_spi::TaskStatus;

/// Lanes up to this hold what is due, by negated priority.
pub(crate) const READY_MAX: i64 = 1 << 31;
/// Pending, due later.
pub(crate) const DELAYED: i64 = READY_MAX + 1;
/// In flight, the lease running.
pub(crate) const LEASED: i64 = READY_MAX + 2;
/// Dead letters, by their death.
pub(crate) const DEAD: i64 = READY_MAX + 4;

/// The lane of what is due.
pub(crate) fn ready(priority: i32) -> i64 {
    -i64::from(priority)
}

/// The lane of a finished task.
pub(crate) fn finished(status: TaskStatus) -> i64 {
    READY_MAX + 1 + i64::from(status.number())
}

/// Bits of a task's key that count admissions: enough for 100,000 a second through 2.8 years times
/// a thousand queues of their own.
const SEQ_BITS: u32 = 43;
/// The highest number of a queue.
pub(crate) const QUEUE_MAX: i64 = (1 << (63 - SEQ_BITS)) - 1;
/// The highest number of an admission.
pub(crate) const SEQ_MAX: i64 = (1 << SEQ_BITS) - 1;

/// A task's key: clustered by queue, then by admission.
pub(crate) fn task_key(queue: i64, seq: i64) -> i64 {
    (queue << SEQ_BITS) | seq
}

/// The queue's number in a task's key.
pub(crate) fn queue_of(task: i64) -> i64 {
    task >> SEQ_BITS
}

/// The admission's number in a task's key.
pub(crate) fn seq_of(task: i64) -> i64 {
    task & SEQ_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_order_priorities_and_keep_the_rest_behind_them() {
        assert!(ready(i32::MAX) < ready(1) && ready(1) < ready(0) && ready(0) < ready(i32::MIN));
        assert_eq!(ready(i32::MIN), READY_MAX);
        assert_eq!(finished(TaskStatus::Succeeded), LEASED + 1);
        assert_eq!(finished(TaskStatus::Dead), DEAD);
        assert_eq!(finished(TaskStatus::Cancelled), DEAD + 1);
    }

    #[test]
    fn keys_hold_the_largest_numbers() {
        let key = task_key(QUEUE_MAX, SEQ_MAX);
        assert_eq!((key, queue_of(key), seq_of(key)), (i64::MAX, QUEUE_MAX, SEQ_MAX));
        assert!(task_key(1, SEQ_MAX) < task_key(2, 0));
    }
}
