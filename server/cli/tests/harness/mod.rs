//! What the tests of the real binary share: a server as a process, calls whose history is recorded,
//! workers and producers, and how a test is run and reported. It knows no fault and judges nothing
//! but histories.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

pub(crate) mod server; // start here
pub(crate) mod calls;
pub(crate) mod recorded;
pub(crate) mod wire;
pub(crate) mod work_session;
pub(crate) mod crew;
pub(crate) mod child;
pub(crate) mod disk;
pub(crate) mod database;
pub(crate) mod clock;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rdq_compliance::Random;
use std::{future::Future, process::ExitCode, time::Duration};

/// What became of a test that ran: it held, or the reason why this machine cannot run it.
pub(crate) type Verdict = Result<(), Ignored>;

/// Why a test cannot run here. A person sees it as ignored.
#[derive(Debug)]
pub(crate) enum Ignored {
    /// Something is not installed: under `CI=true` that is a failure.
    Missing(String),
    /// This machine does not allow it, whatever is installed.
    NotAllowed(String),
}

/// A test that takes longer hangs. It is the one limit of a test: the longest takes half a minute on
/// an idle machine, and no machine is so busy that ten times that is not enough. What a test waits
/// for has no limit of its own, since a busy machine breaks no promise.
/// Counted second by second: time in which the whole process stands still is one of them.
const TEST_SECONDS: u32 = 300;
const SECOND: Duration = Duration::from_secs(1);
/// What is waited for as long as this is named, for the test that ends by its limit.
const NAMED_AFTER: Duration = Duration::from_secs(20);

/// A test by its name. Its seed is printed, and is `RDQ_TEST_SEED` where that is set.
pub(crate) fn trial<F>(name: &str, test: impl FnOnce(Random) -> F + Send + 'static) -> Trial
where
    F: Future<Output = Verdict>,
{
    let shown = name.to_owned();
    Trial::ignorable_test(name, move || {
        let seed = std::env::var("RDQ_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(Random::any_seed);
        eprintln!("{shown}: RDQ_TEST_SEED={seed}");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Failed::from(error.to_string()))?;
        let verdict = runtime.block_on(async {
            // Pinned here, it is dropped while a panic goes on: servers show their logs then.
            let mut test = std::pin::pin!(test(Random::seeded(seed)));
            for _ in 0..TEST_SECONDS {
                if let Ok(end) = tokio::time::timeout(SECOND, test.as_mut()).await {
                    return end;
                }
            }
            panic!("the test did not end within {TEST_SECONDS} seconds")
        });
        runtime.shutdown_background();
        match verdict {
            Ok(()) => Ok(Completion::Completed),
            Err(Ignored::Missing(reason)) if in_ci() => {
                Err(format!("in CI this must run: {reason}").into())
            }
            Err(Ignored::Missing(reason) | Ignored::NotAllowed(reason)) => {
                Ok(Completion::ignored_with(reason))
            }
        }
    })
}

/// Whether nothing that is missing may be skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Runs the tests, two at a time unless told otherwise: each has a server that is kept busy. A
/// process that was started as a child of a test does the child's work instead.
pub(crate) fn run(trials: Vec<Trial>) -> ExitCode {
    if let Some(code) = child::run_if_child() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Waits for something, and names it where that takes long.
pub(crate) async fn awaited<T>(what: &str, something: impl Future<Output = T>) -> T {
    let mut something = std::pin::pin!(something);
    loop {
        match tokio::time::timeout(NAMED_AFTER, something.as_mut()).await {
            Ok(answer) => return answer,
            Err(_) => eprintln!("still waiting: {what}"),
        }
    }
}

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
