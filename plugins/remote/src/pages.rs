//! Pages within their bounds, and running counts read to their end.

use crate::{
    client::in_time,
    convert,
    errors::{Failure, Operation},
};
use rdq_spi::{Attempt, Page, Position, Result, Step, Task};
use tonic::{Response, Status, Streaming};

/// A page has at most so many tasks, or queues, by the contract.
pub(crate) const PAGE_MAX: u32 = 1_000;

/// Asks for a page, and again for a shorter one while it outgrows `bytes_max`: only the server can
/// say where the rest begins.
pub(crate) async fn page_within<F>(
    limit: u32,
    bytes_max: usize,
    page: impl Fn(u32) -> F,
) -> Result<Page>
where
    F: Future<Output = Result<Page>>,
{
    let mut page_size = limit.min(PAGE_MAX);
    loop {
        let page = page(page_size).await?;
        let (fitting, _) = fitting(page.tasks.iter(), bytes_max);
        if fitting == page.tasks.len() {
            return Ok(page);
        }
        page_size = u32::try_from(fitting).unwrap_or(PAGE_MAX);
    }
}

/// How many of these fit, the first in any case, and what all of them weigh.
pub(crate) fn fitting<'a>(
    tasks: impl Iterator<Item = &'a Task>,
    bytes_max: usize,
) -> (usize, usize) {
    let (mut fitting, mut bytes) = (0, 0_usize);
    for (index, task) in tasks.enumerate() {
        let history: usize = task.attempts.iter().map(Attempt::len_bytes).sum();
        bytes += task.envelope.len() + task.progress.len() + task.result.len() + history;
        if index == 0 || bytes <= bytes_max {
            fitting = index + 1;
        }
    }
    (fitting, bytes)
}

/// A page from its answer.
pub(crate) fn read_page(
    operation: Operation,
    tasks: &[bytes::Bytes],
    next: String,
) -> Result<Page> {
    let tasks = tasks.iter().map(convert::task).collect::<Result<_, _>>();
    let next = (!next.is_empty()).then(|| Position(next.into()));
    Ok(Page { tasks: tasks.map_err(|broken| operation.broken(broken))?, next })
}

/// Opens a stream of running counts and reads it to its end. However long that takes, it must go on
/// in time.
pub(crate) async fn count_to_the_end<M>(
    operation: Operation,
    open: impl Future<Output = Result<Response<Streaming<M>>, Status>>,
    read: impl Fn(M) -> (i64, bool),
) -> Result<Step> {
    let failed = |failure: Failure| failure.error(operation, None);
    let mut progress = in_time(open).await.map_err(failed)?.into_inner();
    let mut step = None;
    while let Some(message) = in_time(progress.message()).await.map_err(failed)? {
        if let (count, true) = read(message) {
            step = Some(Step { count: u64::try_from(count).unwrap_or(0), next: None });
        }
    }
    step.ok_or_else(|| operation.broken("ended before it was done"))
}
