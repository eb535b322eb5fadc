//! Runs cases: as a test binary, inside another program, or one by one. It judges nothing itself.

use crate::{Fixture, cases::all};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Completion, Trial};
use std::{fmt, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// A case that takes longer hangs: none is meant to take more than two seconds, and a machine that is
/// sixty times slower than that is still no broken promise.
/// Counted second by second: time in which the whole process stands still is one of them.
const CASE_SECONDS: u32 = 120;

/// Cases mostly wait, for a lease to lapse or for a disk; this many at once keep two cores busy.
const CASES_AT_ONCE: usize = 8;

/// One case of the kit.
pub struct Case {
    /// The rule that it is about, by its name in [`rdq_spi::Storage`].
    pub rule: &'static str,
    /// `area::what_holds`.
    pub name: &'static str,
    /// Why the case does not apply to this fixture, if it does not.
    pub ignored: Option<&'static str>,
    pub(crate) story: Box<dyn Fn() -> LocalBoxFuture<'static, ()> + Send + Sync>,
}

impl Case {
    /// Plays the case on a store of its own. Panics where the store breaks the rule.
    pub async fn run(&self) {
        let mut story = (self.story)();
        for _ in 0..CASE_SECONDS {
            if tokio::time::timeout(Duration::from_secs(1), &mut story).await.is_ok() {
                return;
            }
        }
        panic!("the case did not end within {CASE_SECONDS} seconds");
    }

    /// The same, and what it chooses at random follows from the seed, as far as it does not spawn.
    pub async fn run_seeded(&self, seed: u64) {
        crate::Random::tell(seed, self.run()).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.rule, self.name)
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Cases that held.
    pub passed: u64,
    /// Cases that did not.
    pub failed: u64,
    /// Cases that do not apply to this store.
    pub ignored: u64,
    /// Cases that the arguments left out.
    pub filtered_out: u64,
}

/// Every case of the kit, those that do not apply to this fixture too.
pub fn cases<F: Fixture>() -> Vec<Case> {
    all::<F>()
}

/// The whole of a plugin's `tests/compliance.rs` (`harness = false`): runs the kit as a test binary,
/// under the arguments of libtest, and ends the process with its exit code.
pub fn main<F: Fixture>() -> ! {
    main_unless::<F>(None)
}

/// The same where there may be no store of this kind here, for this reason: then every case is shown
/// as ignored.
pub fn main_unless<F: Fixture>(missing: Option<String>) -> ! {
    let summary = check_unless::<F>(missing, std::env::args().skip(1));
    std::process::exit(if summary.failed > 0 { 101 } else { 0 })
}

/// Runs the kit, prints a line for each case, and says how it ended. The arguments are those of
/// libtest without the program's name: a filter, `--exact`, `--skip`, `--test-threads`, ….
/// It blocks, on threads and a runtime of its own; a wrong argument ends the process.
pub fn check<F: Fixture>(args: impl IntoIterator<Item = String>) -> Summary {
    check_unless::<F>(None, args)
}

/// The same where there may be no store of this kind here, for this reason: then every case is shown
/// as ignored.
#[allow(clippy::needless_pass_by_value, reason = "it is made for this call")]
pub fn check_unless<F: Fixture>(
    missing: Option<String>,
    args: impl IntoIterator<Item = String>,
) -> Summary {
    let program = "compliance".to_owned();
    let mut args = Arguments::from_iter(std::iter::once(program).chain(args));
    args.test_threads = args.test_threads.or(Some(CASES_AT_ONCE));
    // The caller's thread may belong to a runtime already, in which no other may block.
    let run =
        || std::thread::scope(|scope| scope.spawn(|| run::<F>(missing.as_deref(), &args)).join());
    run().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run<F: Fixture>(missing: Option<&str>, args: &Arguments) -> Summary {
    let runtime = std::sync::Arc::new(runtime());
    let trials = all::<F>().into_iter().map(|case| {
        let runtime = runtime.clone();
        let Case { rule, name, ignored, .. } = case;
        let ignored = missing.or(ignored).map(str::to_owned);
        let play = move || {
            if let Some(reason) = ignored {
                return Ok(Completion::ignored_with(reason));
            }
            runtime.block_on(case.run());
            Ok(Completion::Completed)
        };
        Trial::ignorable_test(name, play).with_kind(rule)
    });
    let conclusion = libtest_mimic::run(args, trials.collect());
    Summary {
        passed: conclusion.num_passed,
        failed: conclusion.num_failed,
        ignored: conclusion.num_ignored,
        filtered_out: conclusion.num_filtered_out,
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("the system has threads and a poller for one runtime")
}
