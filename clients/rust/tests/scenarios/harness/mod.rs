//! What the scenarios share: a server of their own, ways to lose or change what goes to it, a rival
//! worker, and patience. It judges nothing.

mod server; // start here
mod proxy;
mod interposer;
mod rival;

pub(crate) use interposer::Interposer;
pub(crate) use proxy::Proxy;
pub(crate) use rival::Rival;
pub(crate) use server::Server;

use rdq_client::{Client, Task, TaskStatus};
use std::time::Duration;

/// The queue of a scenario; each has a server of its own.
pub(crate) const QUEUE: &str = "q";
/// What a test waits for comes, or the test hangs. Counted second by second: time in which the
/// whole process stands still is one of them.
const SECONDS: u32 = 120;

/// Asks again and again until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    awaited(what, asking).await
}

/// Waits for something that comes, or the test hangs.
pub(crate) async fn awaited<T>(what: &str, something: impl Future<Output = T>) -> T {
    let mut something = std::pin::pin!(something);
    for _ in 0..SECONDS {
        let tick = tokio::time::timeout(Duration::from_secs(1), something.as_mut());
        if let Ok(answer) = tick.await {
            return answer;
        }
    }
    panic!("waited in vain: {what}");
}

/// Waits until a task has this status, and answers it.
pub(crate) async fn until_status(client: &Client, id: &str, status: TaskStatus) -> Task {
    until(&format!("{id} is {status:?}"), async || {
        let task = client.get(id).await.expect("the task is there");
        (task.status() == status).then_some(task)
    })
    .await
}

/// Waits until all of a queue's tasks are counted so.
pub(crate) async fn until_succeeded(client: &Client, queue: &str, count: u64) {
    until(&format!("{count} tasks of {queue} succeeded"), async || {
        let stats = client.stats([queue]).await.expect("stats");
        (stats[0].succeeded == count).then_some(())
    })
    .await;
}
