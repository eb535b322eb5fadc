//! Workers as processes of their own, which can be killed and stopped: this test binary, started
//! again. They print what they were handed out, one JSON object a line, and keep no history.

use super::{
    awaited,
    calls::{self, Tasks},
    recorded::Held,
    server,
    wire::task_id,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rdq_compliance::history::Grant;
use rdq_proto::{time, v1};
use rdq_remote::RemoteStorage;
use rdq_spi::{
    ClaimToken, HeldLock, Hold, LockName, Locks as _, OwnerName, StorageError, Timestamp, TryLock,
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};
use tokio::sync::mpsc;

/// Holds what such a process is to do.
const ORDERS: &str = "RDQ_TEST_CHILD";

/// A child whose queue is empty waits so long.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What a child does once it has its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Claims what there is once there is something, works until it is told to finish, and completes.
    Claim,
    /// Subscribes, and resolves nothing.
    Follow,
    /// Subscribes, and does not even read.
    FollowUnread,
    /// Opens a `Work` stream, and resolves nothing.
    Work,
    /// Takes the lock that is called as the queue, and once it is told to finish, renews it.
    Lock,
}

/// What a child is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// What.
    pub(crate) job: Job,
    /// Where.
    pub(crate) server: String,
    /// From which queue.
    pub(crate) queue: String,
    /// How many tasks at once.
    pub(crate) limit: i32,
    /// For how long.
    pub(crate) lease: Duration,
}

/// A line of a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The call was answered, or the stream is open.
    Open,
    /// It was handed out a task.
    Claimed(Claimed),
    /// It has the lock, under this generation, in its own name.
    Locked {
        /// Who it is.
        owner: String,
        /// The hold's.
        generation: i64,
    },
    /// It was told whether it still has the lock.
    Renewed(bool),
    /// It completed a task, and was answered so: `OK`, or the reason of the error.
    Completed {
        /// The task.
        id: String,
        /// The answer.
        answer: String,
    },
}

/// A claim as a child prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the contract's name of the instant")]
pub(crate) struct Claimed {
    /// The task.
    pub(crate) id: String,
    token: String,
    generation: i64,
    attempt_no: i32,
    attempt_count: i32,
    claimed_at: i64,
    lease_expires_at: i64,
}

impl Claimed {
    fn of(claimed: &v1::ClaimedTask) -> Self {
        let task = calls::decode(&claimed.task);
        let millis =
            |at: &Option<_>| at.as_ref().and_then(time::millis).expect("a claim's instant");
        Self {
            id: task.id.clone(),
            token: BASE64_STANDARD.encode(&claimed.claim_token),
            generation: claimed.generation,
            attempt_no: claimed.attempt_no,
            attempt_count: task.attempt_count,
            claimed_at: millis(&task.claimed_at),
            lease_expires_at: millis(&task.lease_expires_at),
        }
    }

    fn token(&self) -> bytes::Bytes {
        BASE64_STANDARD.decode(&self.token).expect("as it was printed").into()
    }

    /// The claim, for calls in the child's name.
    pub(crate) fn held(&self) -> Held {
        Held {
            id: self.id.clone(),
            token: self.token(),
            attempt_no: self.attempt_no,
            task: v1::Task::default(),
        }
    }

    /// The claim, for the history.
    pub(crate) fn grant(&self) -> Grant {
        Grant {
            task: task_id(&self.id),
            token: ClaimToken(self.token()),
            generation: self.generation,
            attempt_no: self.attempt_no.unsigned_abs(),
            attempt_count: self.attempt_count.unsigned_abs(),
            claimed_at: Timestamp::from_millis(self.claimed_at),
            lease_expires_at: Timestamp::from_millis(self.lease_expires_at),
        }
    }
}

/// A child that is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct ChildWorker {
    child: Child,
    lines: mpsc::UnboundedReceiver<Line>,
}

impl ChildWorker {
    /// Starts one.
    pub(crate) fn start(orders: &Orders) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the path of this test"))
            .env(ORDERS, serde_json::to_string(orders).expect("orders are JSON"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can be started again");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("a line of a child");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line; nothing if the child has ended.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        awaited("a line of the child", self.lines.recv()).await
    }

    /// The next so many claims. Panics if the child ends before.
    pub(crate) async fn claims(&mut self, count: usize) -> Vec<Claimed> {
        let mut claims = Vec::new();
        while claims.len() < count {
            match self.line().await {
                Some(Line::Claimed(claimed)) => claims.push(claimed),
                Some(_) => {}
                None => panic!("the child was handed out {} tasks, not {count}", claims.len()),
            }
        }
        claims
    }

    /// The hold of a lock that it has. Panics if the child ends before.
    pub(crate) async fn hold(&mut self) -> HeldLock {
        match self.line().await {
            Some(Line::Locked { owner, generation }) => HeldLock {
                owner: OwnerName::new(&owner).expect("an owner"),
                generation,
                // Nobody here asks for what only the child was told.
                expires_at: Timestamp::MAX,
                remaining: Duration::ZERO,
            },
            other => panic!("the child has no lock: {other:?}"),
        }
    }

    /// Every claim that it printed and that was not read yet, until it is quiet for so long.
    pub(crate) async fn further_claims(&mut self, quiet: Duration) -> Vec<Claimed> {
        let mut claims = Vec::new();
        while let Ok(Some(line)) = tokio::time::timeout(quiet, self.lines.recv()).await {
            if let Line::Claimed(claimed) = line {
                claims.push(claimed);
            }
        }
        claims
    }

    /// Every claim that it printed before its end.
    pub(crate) async fn last_claims(&mut self) -> Vec<Claimed> {
        let mut claims = Vec::new();
        while let Some(line) = self.line().await {
            if let Line::Claimed(claimed) = line {
                claims.push(claimed);
            }
        }
        claims
    }

    /// Tells it to finish its work, for [`Job::Claim`]. A stopped one does once it goes on.
    pub(crate) fn finish(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped");
        stdin.write_all(b"\n").expect("the child is there");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child of ours");
    }

    /// Kills it, as `kill -9` does.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        server::wait(&mut self.child).await;
    }
}

impl Drop for ChildWorker {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does a child's work, if this process is one.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    let orders = std::env::var(ORDERS).ok()?;
    let orders: Orders = serde_json::from_str(&orders).expect("orders are JSON");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.expect("a runtime").block_on(carry_out(&orders));
    if let Err(status) = &result {
        eprintln!("a child worker: {status}");
    }
    Some(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn hold_lock(orders: &Orders) -> Result<(), StorageError> {
    let store = RemoteStorage::connect(&orders.server).await?;
    let name = LockName::new(&orders.queue).expect("a lock");
    let owner = OwnerName::new(format!("child {}", std::process::id())).expect("an owner");
    let wanted = TryLock { name: name.clone(), owner: owner.clone(), ttl: orders.lease };
    let held = loop {
        match store.try_lock(wanted.clone()).await? {
            Some(held) => break held,
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    };
    say(&Line::Locked { owner: owner.as_str().to_owned(), generation: held.generation });
    if told_to_finish() {
        let hold = Hold { name, owner, generation: Some(held.generation) };
        let renewed = store.renew_lock(hold, orders.lease).await?;
        say(&Line::Renewed(renewed.is_some()));
    }
    Ok(())
}

/// Waits to be told; false if nobody is there any more to tell it anything.
fn told_to_finish() -> bool {
    std::io::stdin().read_line(&mut String::new()).unwrap_or(0) > 0
}

async fn carry_out(orders: &Orders) -> Result<(), tonic::Status> {
    let channel = calls::endpoint(&orders.server).connect_lazy();
    let mut tasks = Tasks::new(channel);
    let follow = calls::follow(&orders.queue, orders.limit, orders.lease);
    match orders.job {
        Job::Claim => {
            let request = calls::claim(&orders.queue, orders.limit, orders.lease);
            let mut claimed = Vec::new();
            while claimed.is_empty() {
                claimed = calls::claim_once(&tasks, request.clone()).await?;
                tokio::time::sleep(LOOKS_AGAIN_AFTER).await;
            }
            say(&Line::Open);
            say_all(&claimed);
            if !told_to_finish() {
                return Ok(());
            }
            for claimed in &claimed {
                let held = Held::of(claimed);
                let request = v1::CompleteRequest {
                    id: held.id.clone(),
                    claim_token: held.token,
                    ..v1::CompleteRequest::default()
                };
                let answer = match tasks.complete(request).await {
                    Ok(_) => "OK",
                    Err(status) => {
                        calls::reason(&status).map_or("UNKNOWN", v1::ErrorReason::reason)
                    }
                };
                say(&Line::Completed { id: held.id, answer: answer.to_owned() });
            }
        }
        Job::Follow => {
            let mut stream = tasks.claim_due(follow).await?.into_inner();
            say(&Line::Open);
            while let Some(message) = stream.message().await? {
                say_all(&message.tasks);
            }
        }
        Job::FollowUnread => {
            let _unread = tasks.claim_due(follow).await?;
            say(&Line::Open);
            std::future::pending::<()>().await;
        }
        Job::Work => {
            let start = v1::WorkRequest {
                start: Some(v1::WorkStart {
                    queues: vec![orders.queue.clone()],
                    worker_id: "child".to_owned(),
                    lease: Some(time::duration(orders.lease)),
                }),
                credits: Some(orders.limit),
                ..v1::WorkRequest::default()
            };
            let (up, requests) = mpsc::channel(1);
            // There is room: nobody else sends.
            let _ = up.send(start).await;
            let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
            let mut stream = tasks.work(requests).await?.into_inner();
            say(&Line::Open);
            while let Some(message) = stream.message().await? {
                say_all(&message.tasks);
            }
        }
        Job::Lock => {
            let held = hold_lock(orders).await;
            held.map_err(|error| tonic::Status::unknown(error.to_string()))?;
        }
    }
    Ok(())
}

fn say_all(claimed: &[v1::ClaimedTask]) {
    for claimed in claimed {
        say(&Line::Claimed(Claimed::of(claimed)));
    }
}

fn say(line: &Line) {
    let mut stdout = std::io::stdout().lock();
    let line = serde_json::to_string(line).expect("a line is JSON");
    // If nobody listens any more, nobody misses it.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
