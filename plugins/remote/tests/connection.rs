//! What the compliance kit cannot do: take the server away, and ask for less than it would send.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use bytes::Bytes;
use futures::StreamExt as _;
use prost::Message as _;
use rdq_daemon::{ServeArgs, Server};
use rdq_proto::v1;
use rdq_remote::RemoteStorage;
use rdq_spi::{
    ClaimParams, ClaimQueue, ListParams, Moment, NewTask, Overrides, QueueName, Storage,
    StorageError, TaskId, TaskStatus, WorkerId,
};
use std::{
    net::{SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const TASK_BYTES: usize = 1_000;

async fn serve(listen: SocketAddr) -> Server {
    let args = ServeArgs {
        listen: Some(listen),
        http: "127.0.0.1:0".parse().ok(),
        storage: Some("memory:".into()),
        ..ServeArgs::default()
    };
    Server::start(args).await.unwrap()
}

/// An address that nobody has now. Its port is below those that the system gives to whoever asks for
/// any: it is still free when a server that was taken away comes back to it.
fn quiet_address() -> SocketAddr {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Test binaries that run at the same time start at different places.
        let start = std::process::id().wrapping_mul(37);
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).unwrap();
        if let Ok(free) = TcpListener::bind(("127.0.0.1", port)) {
            return free.local_addr().unwrap();
        }
    }
}

async fn served() -> (Server, RemoteStorage) {
    let server = serve(quiet_address()).await;
    let storage = RemoteStorage::connect(&format!("http://{}", server.address())).await.unwrap();
    (server, storage)
}

fn task(id: &str) -> NewTask {
    let envelope = v1::Task {
        id: id.into(),
        queue: "q".into(),
        handler_ref: "h".into(),
        payload: Bytes::from(vec![7; TASK_BYTES]),
        ..v1::Task::default()
    };
    NewTask {
        id: TaskId::stored(id),
        queue: QueueName::stored("q"),
        handler_ref: QueueName::stored("h"),
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: envelope.encode_to_vec().into(),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

async fn enqueue(storage: &RemoteStorage, ids: &[&str]) {
    let tasks = ids.iter().map(|id| task(id)).collect();
    for admission in storage.enqueue(tasks).await.unwrap() {
        assert!(admission.unwrap().created);
    }
}

fn claim_params(limit: u32, bytes_max: usize) -> ClaimParams {
    let lease = Duration::from_secs(60);
    ClaimParams {
        queues: vec![ClaimQueue { queue: QueueName::stored("q"), lease, lease_max: lease }],
        limit,
        bytes_max,
        lease: None,
        worker_id: WorkerId::stored("w"),
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable_and_found_again_when_it_is_back() {
    let (server, storage) = served().await;
    let address = server.address();
    server.shutdown().await.unwrap();

    let read = storage.get(TaskId::stored("a")).await;
    assert!(matches!(read, Err(StorageError::Unavailable { .. })), "{read:?}");
    let changed = storage.enqueue(vec![task("a")]).await.unwrap().remove(0);
    assert!(
        matches!(changed, Err(StorageError::Unavailable { .. })),
        "nothing was sent, so nothing changed: {changed:?}"
    );

    let _server = serve(address).await;
    enqueue(&storage, &["a"]).await;
    assert_eq!(storage.get(TaskId::stored("a")).await.unwrap().status, TaskStatus::Pending);
}

#[tokio::test]
async fn hints_go_on_when_the_server_is_back_and_cover_the_gap() {
    let (server, storage) = served().await;
    let queue = QueueName::stored("q");
    let mut hints = storage.wait_due(vec![queue.clone()]).await.unwrap();
    let address = server.address();
    server.shutdown().await.unwrap();
    let server = serve(address).await;

    let hint = hints.next().await.unwrap();
    assert_eq!((hint.queue, hint.due_in), (queue, Duration::ZERO), "for what was missed");
    enqueue(&storage, &["a"]).await;
    assert!(hints.next().await.is_some());

    storage.close().await;
    assert_eq!(hints.next().await, None);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_claim_has_no_room_for_goes_back_unspent() {
    let (_server, storage) = served().await;
    enqueue(&storage, &["a", "b", "c", "d"]).await;

    let params = claim_params(4, 2 * TASK_BYTES + TASK_BYTES / 2);
    let claimed = storage.claim_due(vec![params]).await.unwrap().remove(0).unwrap();
    assert_eq!(claimed.claims.len(), 2);
    assert_eq!(claimed.next_due_in, Some(Duration::ZERO), "more is due");

    let params = claim_params(4, 1);
    let claimed = storage.claim_due(vec![params]).await.unwrap().remove(0).unwrap();
    assert_eq!(claimed.claims.len(), 1, "a first task always fits");
    assert_eq!(claimed.claims[0].task.attempt_count, 0);
}

#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_again_and_nothing_is_skipped() {
    let (_server, storage) = served().await;
    enqueue(&storage, &["a", "b", "c", "d", "e"]).await;

    let (mut position, mut ids, mut sizes) = (None, Vec::new(), Vec::new());
    loop {
        let params = ListParams {
            queue: QueueName::stored("q"),
            status: None,
            position,
            limit: 5,
            bytes_max: 2 * TASK_BYTES + TASK_BYTES / 2,
            include_attempts: false,
        };
        let page = storage.list(params).await.unwrap();
        sizes.push(page.tasks.len());
        ids.extend(page.tasks.into_iter().map(|task| task.id.as_str().to_owned()));
        position = page.next;
        if position.is_none() {
            break;
        }
    }

    assert_eq!(ids, ["e", "d", "c", "b", "a"]);
    assert!(sizes.iter().all(|size| *size <= 2), "{sizes:?}");
}
